package PVE::Storage::Plugin;

# Stand-in for the base class of Proxmox VE's storage plug-ins: what the plug-in
# of deploy/proxmox inherits or registers with.

use strict;
use warnings;

our @SHARED_STORAGE;

sub find_free_diskname {
    my ($class, $storeid, $scfg, $vmid) = @_;
    my %taken;
    for my $image (@{ $class->list_images($storeid, $scfg, $vmid) }) {
        $taken{$1} = 1 if $image->{volid} =~ m/(?:vm|base)-\Q$vmid\E-disk-(\d+)$/;
    }
    my $number = 0;
    $number++ while $taken{$number};
    return "vm-$vmid-disk-$number";
}

1;
