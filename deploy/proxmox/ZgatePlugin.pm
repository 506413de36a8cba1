package PVE::Storage::Custom::ZgatePlugin;

# Disks of virtual machines: zvols of a zgate gateway, made through its HTTP API
# and reached over iSCSI by QEMU itself. See deploy/proxmox/README.md.
#
# The gateway has the only record of a disk. Nothing is kept on the node, and
# each request may be repeated: it completes or finds what an earlier one began.
# A new disk is destroyed by the gateway unless it is confirmed, so that a node
# that crashes between the request and its own record leaves nothing.
#
# A template keeps its zvol. It is called base-ID-disk-N as soon as the zvol has
# the snapshot 0-base, so that there is no moment between a rename and a
# snapshot at which it is neither.

use strict;
use warnings;

use HTTP::Tiny;
use JSON::PP ();
use PVE::INotify;
use PVE::Storage::Plugin;

use base qw(PVE::Storage::Plugin);

# Versions of the storage API that this file is written for.
use constant { OLDEST_API => 10, NEWEST_API => 15 };

use constant {
    API_PORT => 9470,
    ISCSI_PORT => 3260,
    LUN => 0,
    # No snapshot of a user: their names begin with a letter.
    BASE => '0-base',
    # A disk that was not confirmed within this time is destroyed.
    CONFIRM_SECONDS => 300,
    # The gateway answers a change within 25 s.
    CHANGE_TIMEOUT_SECONDS => 40,
    ATTEMPTS => 4,
    PAUSE_SECONDS => 2,
    # pvestatd asks each storage in turn, every few seconds.
    STATUS_TIMEOUT_SECONDS => 8,
    PAGE_ITEMS => 500,
};

our $INITIATOR_FILE = '/etc/iscsi/initiatorname.iscsi';

# Any node can use any disk.
push @PVE::Storage::Plugin::SHARED_STORAGE, 'zgate';

sub api {
    my $here = PVE::Storage->can('APIVER') ? PVE::Storage->APIVER() : NEWEST_API;
    return NEWEST_API if $here > NEWEST_API;
    return $here < OLDEST_API ? OLDEST_API : $here;
}

sub type { return 'zgate'; }

sub plugindata {
    return {
        content => [{ images => 1, none => 1 }, { images => 1 }],
        format => [{ raw => 1 }, 'raw'],
        'sensitive-properties' => {},
    };
}

sub properties {
    my $text = sub { return { description => $_[0], type => 'string' } };
    return {
        'zgate-api' => $text->('Address of the API of the gateway: HOST or HOST:PORT.'),
        'zgate-parent' => $text->('Dataset below which disks are made.'),
        'zgate-portal' => $text->('Address of iSCSI, if it is not the host of the API.'),
        'zgate-owner' => $text->('Owner of the disks, one for each cluster: "pve" by default.'),
        'zgate-token-file' => $text->('File with the token of the API.'),
        'zgate-ca-file' => $text->('Authorities of the certificate of the API.'),
        'zgate-certificate' => $text->('Certificate of the nodes, instead of a token.'),
        'zgate-key' => $text->('Key of the certificate.'),
        'zgate-destroy-scheduled' => {
            description => 'A rollback destroys later snapshots that a schedule took.',
            type => 'boolean',
        },
    };
}

sub options {
    return {
        'zgate-api' => { fixed => 1 },
        'zgate-parent' => { fixed => 1 },
        'zgate-owner' => { fixed => 1, optional => 1 },
        (map { ("zgate-$_" => { optional => 1 }) }
            qw(portal token-file ca-file certificate key destroy-scheduled)),
        (map { ($_ => { optional => 1 }) } qw(nodes disable content bwlimit blocksize)),
    };
}

# Requests

sub encoded {
    my ($text) = @_;
    $text =~ s/([^A-Za-z0-9\-._~])/sprintf('%%%02X', ord($1))/ge;
    return $text;
}

# HOST, HOST:PORT, ADDRESS, [ADDRESS] or [ADDRESS]:PORT: host and port.
sub host_and_port {
    my ($text, $port) = @_;
    return ($1, $2 // $port) if $text =~ m/^\[(.*)\](?::(\d+))?$/ || $text =~ m/^([^:]+)(?::(\d+))?$/;
    return ($text, $port);
}

sub with_port {
    my ($host, $port) = host_and_port(@_);
    return $host =~ m/:/ ? "[$host]:$port" : "$host:$port";
}

sub first_line {
    my ($path, $what) = @_;
    open(my $file, '<', $path) or die "$what $path: $!\n";
    my $line = <$file> // '';
    close($file);
    $line =~ s/\s+$//;
    return $line;
}

sub http {
    my ($scfg, $storeid, $timeout) = @_;
    my %headers = ('Content-Type' => 'application/json');
    my %tls;
    if (my $file = $scfg->{'zgate-certificate'}) {
        $tls{SSL_cert_file} = $file;
        $tls{SSL_key_file} = $scfg->{'zgate-key'} // die "zgate-key is missing\n";
    } else {
        my $file = $scfg->{'zgate-token-file'} // "/etc/pve/priv/zgate/$storeid.token";
        $headers{Authorization} = 'Bearer ' . first_line($file, 'token');
    }
    $tls{SSL_ca_file} = $scfg->{'zgate-ca-file'} if $scfg->{'zgate-ca-file'};
    return HTTP::Tiny->new(
        agent => 'zgate-proxmox',
        default_headers => \%headers,
        keep_alive => 0,
        max_redirect => 0,
        timeout => $timeout,
        verify_SSL => 1,
        SSL_options => \%tls,
    );
}

# Sends a request until it is answered. Returns status and content; what is
# listed in `accept`, besides success, is no error.
sub request {
    my ($scfg, $storeid, $method, $path, $body, %how) = @_;
    my $timeout = $how{timeout} // CHANGE_TIMEOUT_SECONDS;
    my $attempts = $how{attempts} // ATTEMPTS;
    my $http = http($scfg, $storeid, $timeout);
    my $url = 'https://' . with_port($scfg->{'zgate-api'}, API_PORT) . "/api/v1/$path";
    my $options = $body ? { content => JSON::PP->new->canonical->encode($body) } : {};
    for my $attempt (1 .. $attempts) {
        my $answer = $http->request($method, $url, $options);
        my $status = $answer->{status};
        # The answer of an earlier attempt may have been lost.
        my $again = $attempt > 1;
        my $content = $answer->{content} // '';
        my $value = length($content) ? eval { JSON::PP::decode_json($content) } : undef;
        return ($status, $value, $again) if $answer->{success};
        my $error = ref($value) eq 'HASH' ? $value->{error} : undef;
        return ($status, undef, $again) if $error && grep { $error->{code} eq $_ } @{ $how{accept} };
        if ($attempt < $attempts && ($status == 599 || $status == 503 || $status == 500)) {
            sleep(PAUSE_SECONDS);
            next;
        }
        die "zgate: $error->{message}; $error->{next_step}\n" if $error;
        $content =~ s/\s+/ /g;
        die "zgate: no answer from $url: $content\n" if $status == 599;
        die "zgate: $url answered $status $answer->{reason}\n";
    }
}

# Returns all items of a list.
sub items {
    my ($scfg, $storeid, $path) = @_;
    my ($after, @all);
    do {
        my $page = "$path&limit=" . PAGE_ITEMS . (defined($after) ? '&after=' . encoded($after) : '');
        my (undef, $found) = request($scfg, $storeid, 'GET', $page);
        push @all, @{ $found->{items} };
        $after = $found->{next};
    } while (defined($after));
    return @all;
}

sub owner {
    my ($scfg) = @_;
    return $scfg->{'zgate-owner'} // 'pve';
}

sub owned_query { return '?owner=' . encoded(owner($_[0])); }

# Query for the disks of this storage.
sub below {
    my ($scfg) = @_;
    return 'parent=' . encoded($scfg->{'zgate-parent'}) . '&owner=' . encoded(owner($scfg));
}

# Names

sub parse_volname {
    my ($class, $volname) = @_;
    if ($volname =~ m!^(?:(base-(\d+)-[\w.-]+)/)?((vm|base)-(\d+)-[\w.-]+)$!) {
        my ($basename, $basevmid, $name, $kind, $vmid) = ($1, $2, $3, $4, $5);
        return ('images', $name, $vmid, $basename, $basevmid, $kind eq 'base' ? 1 : 0, 'raw');
    }
    die "zgate: '$volname' is no name of a disk\n";
}

# Id of a disk in the API: that of its zvol.
sub id {
    my ($class, $scfg, $volname) = @_;
    my $name = ($class->parse_volname($volname))[1];
    $name =~ s/^base-/vm-/;
    return "$scfg->{'zgate-parent'}/$name";
}

sub disk_path {
    my ($class, $scfg, $volname) = @_;
    return 'volumes/' . encoded($class->id($scfg, $volname));
}

sub snapshot_path {
    my ($class, $scfg, $volname, $snap) = @_;
    return $class->disk_path($scfg, $volname) . '/snapshots/' . encoded($snap);
}

sub disk {
    my ($class, $scfg, $storeid, $volname, %how) = @_;
    my (undef, $disk) =
        request($scfg, $storeid, 'GET', $class->disk_path($scfg, $volname), undef, %how);
    return $disk;
}

sub no_snapshot {
    my ($snapname) = @_;
    die "zgate: a snapshot cannot be used directly; clone it\n" if defined($snapname);
}

# Reaching a disk

# Name with which this node logs in. Debian's file begins with comments.
sub initiator {
    open(my $file, '<', $INITIATOR_FILE) or die "name of the initiator $INITIATOR_FILE: $!\n";
    while (my $line = <$file>) {
        return $1 if $line =~ m/^\s*InitiatorName\s*=\s*([\w.:-]+)/;
    }
    die "zgate: $INITIATOR_FILE has no InitiatorName; iscsid makes one when it starts\n";
}

sub reach {
    my ($class, $scfg, $storeid, $volname) = @_;
    my $disk = $class->disk($scfg, $storeid, $volname);
    my ($host) = host_and_port($scfg->{'zgate-api'});
    return (with_port($scfg->{'zgate-portal'} // $host, ISCSI_PORT), $disk->{target});
}

sub path {
    my ($class, $scfg, $volname, $storeid, $snapname) = @_;
    no_snapshot($snapname);
    my ($vtype, undef, $vmid) = $class->parse_volname($volname);
    my ($portal, $target) = $class->reach($scfg, $storeid, $volname);
    return ("iscsi://$portal/$target/" . LUN, $vmid, $vtype);
}

sub filesystem_path {
    my ($class, $scfg, $volname, $snapname) = @_;
    die "zgate: a disk is no file\n";
}

sub qemu_blockdev_options {
    my ($class, $scfg, $storeid, $volname, $machine_version, $options) = @_;
    no_snapshot($options->{'snapshot-name'});
    my ($portal, $target) = $class->reach($scfg, $storeid, $volname);
    return {
        driver => 'iscsi',
        transport => 'tcp',
        portal => $portal,
        target => $target,
        lun => LUN,
        # The name in `-iscsi`, which Proxmox VE gives QEMU, is for disks that have a path.
        'initiator-name' => initiator(),
    };
}

sub access_path {
    my ($class, $scfg, $volname) = @_;
    return $class->disk_path($scfg, $volname) . '/access/' . encoded(PVE::INotify::nodename());
}

sub activate_volume {
    my ($class, $storeid, $scfg, $volname, $snapname, $cache, $hints) = @_;
    no_snapshot($snapname);
    my $access = { owner => owner($scfg), initiator => initiator() };
    request($scfg, $storeid, 'PUT', $class->access_path($scfg, $volname), $access);
    return 1;
}

sub deactivate_volume {
    my ($class, $storeid, $scfg, $volname, $snapname, $cache) = @_;
    no_snapshot($snapname);
    my $path = $class->access_path($scfg, $volname) . owned_query($scfg);
    request($scfg, $storeid, 'DELETE', $path);
    return 1;
}

sub activate_storage { return 1; }

sub deactivate_storage { return 1; }

# Making and deleting

# Makes a disk and confirms it; after an error or a signal nothing is left.
sub make {
    my ($class, $scfg, $storeid, $name, $size_bytes, $source) = @_;
    my $request = {
        name => $name,
        parent => $scfg->{'zgate-parent'},
        owner => owner($scfg),
        kind => 'block',
        size_bytes => $size_bytes,
    };
    $request->{source} = $source if $source;
    if (my $size = $scfg->{blocksize}) {
        $request->{properties} = { volblocksize => $size } if !$source;
    }
    my $signal = sub { die "zgate: interrupted\n" };
    local @SIG{qw(INT TERM HUP QUIT)} = ($signal) x 4;
    # Asked first: the answer to a repeated request does not tell who made the disk. One that
    # was not confirmed in time is not listed: it makes way for the request.
    my $id = $class->id($scfg, $name);
    my @known = grep { $_->{id} eq $id } items($scfg, $storeid, 'volumes?' . below($scfg));
    die "zgate: disk $name exists already\n" if @known;
    my $disk = $class->disk_path($scfg, $name);
    my $mine = 0;
    eval {
        my $path = 'volumes?confirm_seconds=' . CONFIRM_SECONDS;
        my ($status, undef, $again) = request($scfg, $storeid, 'POST', $path, $request);
        die "zgate: disk $name exists already\n" if $status == 200 && !$again;
        $mine = 1;
        request($scfg, $storeid, 'POST', "$disk/confirm", { owner => owner($scfg) });
    };
    if (my $error = $@) {
        local @SIG{qw(INT TERM HUP QUIT)} = ('IGNORE') x 4;
        my $path = $disk . owned_query($scfg);
        eval { request($scfg, $storeid, 'DELETE', $path, undef, attempts => 1) } if $mine;
        die $error;
    }
    return $name;
}

sub alloc_image {
    my ($class, $storeid, $scfg, $vmid, $fmt, $name, $size_kib) = @_;
    die "zgate: format '$fmt' is not supported, only raw\n" if $fmt ne 'raw';
    die "zgate: '$name' does not begin with 'vm-$vmid-'\n" if $name && $name !~ m/^vm-$vmid-/;
    $name ||= $class->find_free_diskname($storeid, $scfg, $vmid, $fmt);
    return $class->make($scfg, $storeid, $name, $size_kib * 1024);
}

sub free_image {
    my ($class, $storeid, $scfg, $volname, $isBase) = @_;
    my $path = $class->disk_path($scfg, $volname);
    my ($status) = request($scfg, $storeid, 'GET', $path, undef, accept => ['not_found']);
    return undef if $status == 404;
    $class->deactivate_volume($storeid, $scfg, $volname);
    for my $snap ($class->snapshots($scfg, $storeid, $volname)) {
        $class->volume_snapshot_delete($scfg, $storeid, $volname, $snap->{name});
    }
    request($scfg, $storeid, 'DELETE', $path . owned_query($scfg));
    return undef;
}

sub create_base {
    my ($class, $storeid, $scfg, $volname) = @_;
    my ($vtype, $name, $vmid, $basename, $basevmid, $isBase) = $class->parse_volname($volname);
    die "zgate: $volname is a template already\n" if $isBase;
    $class->volume_snapshot($scfg, $storeid, $volname, BASE);
    $name =~ s/^vm-/base-/;
    return $basename ? "$basename/$name" : $name;
}

sub clone_image {
    my ($class, $scfg, $storeid, $volname, $vmid, $snap) = @_;
    my ($vtype, $basename, $basevmid, undef, undef, $isBase) = $class->parse_volname($volname);
    die "zgate: only templates have linked clones\n" if !$isBase || $snap;
    my $name = $class->find_free_diskname($storeid, $scfg, $vmid, 'raw');
    my $disk = $class->disk($scfg, $storeid, $volname);
    my $source = { snapshot => $class->id($scfg, $volname) . '@' . BASE };
    $class->make($scfg, $storeid, $name, $disk->{size_bytes}, $source);
    return "$basename/$name";
}

sub list_images {
    my ($class, $storeid, $scfg, $vmid, $vollist, $cache) = @_;
    my $parent = $scfg->{'zgate-parent'};
    my $below = below($scfg);
    my %templates = map { $_->{volume} => 1 } grep { $_->{name} eq BASE }
        items($scfg, $storeid, "volume-snapshots?$below");
    my $base = '@' . BASE;
    my @found;
    for my $disk (items($scfg, $storeid, "volumes?$below")) {
        my $name = $disk->{name};
        next if $disk->{kind} ne 'block' || $name !~ m/^vm-(\d+)-/;
        my $of = $1;
        $name =~ s/^vm-/base-/ if $templates{ $disk->{id} };
        my $source = ref($disk->{source}) ? $disk->{source}->{snapshot} // '' : '';
        my $origin = $source =~ m!^\Q$parent\E/vm-([^/]+)\Q$base\E$! ? "base-$1" : undef;
        my $volid = "$storeid:" . ($origin ? "$origin/$name" : $name);
        if ($vollist) {
            next if !grep { $_ eq $volid } @$vollist;
        } else {
            next if defined($vmid) && $vmid ne $of;
        }
        push @found, {
            volid => $volid,
            name => $name,
            vmid => $of,
            size => $disk->{size_bytes},
            used => $disk->{used_bytes},
            format => 'raw',
            $origin ? (parent => "$origin$base") : (),
        };
    }
    return \@found;
}

sub status {
    my ($class, $storeid, $scfg, $cache) = @_;
    my $path = 'capacity?parent=' . encoded($scfg->{'zgate-parent'});
    my %once = (attempts => 1, timeout => STATUS_TIMEOUT_SECONDS);
    my (undef, $space) = request($scfg, $storeid, 'GET', $path, undef, %once);
    my ($total, $free) = ($space->{total_bytes}, $space->{available_bytes});
    return ($total, $free, $total - $free, 1);
}

# Size and snapshots

sub volume_size_info {
    my ($class, $scfg, $storeid, $volname, $timeout) = @_;
    my $disk = $class->disk($scfg, $storeid, $volname, $timeout ? (timeout => $timeout) : ());
    my ($size, $used) = ($disk->{size_bytes}, $disk->{used_bytes});
    return wantarray ? ($size, 'raw', $used, undef) : $size;
}

sub volume_resize {
    my ($class, $scfg, $storeid, $volname, $size, $running, $snapname) = @_;
    die "zgate: a snapshot cannot be resized\n" if defined($snapname);
    my $wanted = { owner => owner($scfg), size_bytes => int($size) };
    my (undef, $disk) =
        request($scfg, $storeid, 'PATCH', $class->disk_path($scfg, $volname), $wanted);
    return $disk->{size_bytes};
}

sub snapshots {
    my ($class, $scfg, $storeid, $volname) = @_;
    my $of = encoded($class->id($scfg, $volname));
    return items($scfg, $storeid, "volume-snapshots?volume=$of");
}

sub volume_snapshot {
    my ($class, $scfg, $storeid, $volname, $snap) = @_;
    my $path = $class->snapshot_path($scfg, $volname, $snap);
    request($scfg, $storeid, 'PUT', $path, { owner => owner($scfg) });
    return undef;
}

sub volume_snapshot_delete {
    my ($class, $scfg, $storeid, $volname, $snap, $running) = @_;
    my $path = $class->snapshot_path($scfg, $volname, $snap) . owned_query($scfg);
    request($scfg, $storeid, 'DELETE', $path);
    return undef;
}

sub volume_snapshot_rollback {
    my ($class, $scfg, $storeid, $volname, $snap) = @_;
    my $scheduled = $scfg->{'zgate-destroy-scheduled'} ? JSON::PP::true() : JSON::PP::false();
    my $wanted = { owner => owner($scfg), destroy_scheduled => $scheduled };
    my $path = $class->snapshot_path($scfg, $volname, $snap) . '/rollback';
    request($scfg, $storeid, 'POST', $path, $wanted);
    return undef;
}

sub volume_rollback_is_possible {
    my ($class, $scfg, $storeid, $volname, $snap, $blockers) = @_;
    my @all = $class->snapshots($scfg, $storeid, $volname);
    my ($wanted) = grep { $_->{name} eq $snap } @all;
    die "zgate: $volname has no snapshot $snap\n" if !$wanted;
    my $time = $wanted->{created_unix_seconds};
    my @later = map { $_->{name} } grep { $_->{created_unix_seconds} > $time } @all;
    push @$blockers, @later if $blockers;
    die "zgate: snapshots later than $snap exist: " . join(', ', @later) . "\n" if @later;
    return 1;
}

sub volume_snapshot_info {
    my ($class, $scfg, $storeid, $volname) = @_;
    my @all = $class->snapshots($scfg, $storeid, $volname);
    return {
        map { ($_->{name} => { id => $_->{id}, timestamp => $_->{created_unix_seconds} }) } @all
    };
}

sub volume_qemu_snapshot_method { return 'storage'; }

sub storage_can_replicate { return 0; }

sub volume_has_feature {
    my ($class, $scfg, $feature, $storeid, $volname, $snapname, $running) = @_;
    my $features = {
        snapshot => { current => 1, snap => 1 },
        clone => { base => 1 },
        template => { current => 1 },
        copy => { base => 1, current => 1 },
        sparseinit => { base => 1, current => 1 },
    };
    my $isBase = ($class->parse_volname($volname))[5];
    my $key = $snapname ? 'snap' : $isBase ? 'base' : 'current';
    return $features->{$feature}->{$key};
}

1;
