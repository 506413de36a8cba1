package HTTP::Tiny;

# Stand-in that sends requests to the API's Unix socket ($ENV{ZGATE_API_SOCKET}), for
# machines without Perl's TLS. The rest is as in the module of this name.

use strict;
use warnings;

use IO::Socket::UNIX;

sub new { my ($class, %options) = @_; return bless {%options}, $class; }

sub request {
    my ($self, $method, $url, $options) = @_;
    my ($path) = $url =~ m!^https://[^/]+(/.*)$! or die "no address: $url\n";
    my $body = $options->{content} // '';
    my $socket = IO::Socket::UNIX->new(Peer => $ENV{ZGATE_API_SOCKET})
        or return { status => 599, success => '', content => "connect: $!" };
    print $socket "$method $path HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        . "Content-Type: application/json\r\nContent-Length: " . length($body) . "\r\n\r\n$body";
    my $answer = do { local $/; <$socket> } // '';
    my ($status, $reason) = $answer =~ m!^HTTP/1\.1 (\d+) ([^\r]*)!
        or return { status => 599, success => '', content => 'no answer' };
    my $content = $answer =~ s/^.*?\r\n\r\n//sr;
    return { status => $status, reason => $reason, content => $content, success => scalar($status =~ /^2/) };
}

1;
