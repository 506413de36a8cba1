package PVE::INotify;

# Stand-in: the name of this node.

use strict;
use warnings;

sub nodename { return $ENV{PROXMOX_NODE} // 'node1'; }

1;
