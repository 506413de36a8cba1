# title: access control lists as the client and the store see them
# seconds: 150
# ci: no

store_make "$(best_store)"
need "the gateway serves" gateway_start
need "v4.2 mounts" client_mount 4.2 /mnt/v
need "v3 mounts" client_mount 3 /mnt/v3

nfs4() {
    cd /mnt/v
    echo secret >file
    chown 1001:1001 file
    chmod 640 file
    nfs4_getfacl file
    refused "denied" as 1002 cat file
    nfs4_setfacl -a A::1002:r file
    nfs4_getfacl file
    same 1 "$(nfs4_getfacl file | grep -c '^A::1002:r')" "entries of 1002"
    same secret "$(as 1002 cat file)" "read by the ACL"
    refused "denied" as 1002 sh -c 'echo x >>file'
    getfacl -n "$STORE/file"
    same 1 "$(getfacl -n "$STORE/file" 2>/dev/null | grep -c '^user:1002:r--')" "entry at the store"
}
mode_of_acl() {
    cd /mnt/v
    chmod 600 file
    drop_caches
    refused "denied" as 1002 cat file
    same 600 "$(stat -c %a file)" mode
}
from_the_store() {
    cd /mnt/v
    echo x >given
    chmod 600 given
    setfacl -m u:1002:rw "$STORE/given"
    drop_caches
    sleep 3
    as 1002 sh -c 'echo more >>given'
    nfs4_getfacl given | grep '^A::1002:rw'
}
# POSIX ACLs need the NFSACL side protocol, which zgate has not: the client
# says so instead of pretending.
posix_v3() { cd /mnt/v3 && echo x >posix && refused "not supported" setfacl -m u:1002:r posix; }

step "nfs4_setfacl grants, the store agrees" nfs4
step "chmod takes the grant away" mode_of_acl
step "setfacl at the store is seen" from_the_store
step "setfacl over v3 is refused honestly" posix_v3
