#!/usr/bin/perl

# call.pl CONFIG METHOD ARGUMENTS…: calls a method of the plug-in as Proxmox VE does,
# and prints what it returns as JSON. CONFIG is a file with the storage's keys as JSON;
# STORAGE and CONFIG as arguments stand for the storage's name and keys.
#
# With CALL_DIES_AFTER=N, or CALL_DIES_BEFORE=N, the process is killed after, or
# before, its request number N. With CALL_LOSES=METHOD the first answer to a request of
# this method is lost.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use HTTP::Tiny;
use JSON::PP;

BEGIN {
    my ($before, $after) = @ENV{qw(CALL_DIES_BEFORE CALL_DIES_AFTER)};
    my $send = \&HTTP::Tiny::request;
    my $lost = $ENV{CALL_LOSES} // '';
    my $number = 0;
    no warnings 'redefine';
    *HTTP::Tiny::request = sub {
        $number++;
        my $method = $_[1];
        kill 'KILL', $$ if ($before // 0) == $number;
        my $answer = $send->(@_);
        kill 'KILL', $$ if ($after // 0) == $number;
        if ($method eq $lost) {
            $lost = '';
            return { success => '', status => 599, content => 'the answer was lost' };
        }
        return $answer;
    };
}

require($ENV{ZGATE_PLUGIN} // "$FindBin::Bin/../../deploy/proxmox/ZgatePlugin.pm");

my $class = 'PVE::Storage::Custom::ZgatePlugin';
my ($config, $method, @arguments) = @ARGV;
open(my $file, '<', $config) or die "$config: $!\n";
my $scfg = decode_json(join('', <$file>));
no warnings 'once';
$PVE::Storage::Custom::ZgatePlugin::INITIATOR_FILE = $scfg->{initiator_file};
my %stands_for = (STORAGE => 'zgate', CONFIG => $scfg, UNDEF => undef, LIST => []);
my @values = map { exists($stands_for{$_}) ? $stands_for{$_} : $_ } @arguments;
my @returned = $class->$method(@values);
my ($list) = grep { ref($_) eq 'ARRAY' } @values;
print encode_json({ returned => \@returned, list => $list }), "\n";
