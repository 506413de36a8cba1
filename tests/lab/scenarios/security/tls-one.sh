# title: RPC-with-TLS by the kernel's client and tlshd: NFSv4.2 with mutual TLS, and plain refused
# seconds: 240

. /lab/guest/tls.sh
. /lab/guest/tls-cell.sh
store_make "$(best_store)"
tls_prepare
tls_export mtls mtls
MORE_CONFIG=$(tls_config)
need "the gateway serves" gateway_start
need "tlshd of the first client" handshakes a ca client
need "tlshd of the second client" handshakes b ca client
cell 4.2 mtls /mtls
step "without TLS: refused" refused "not permitted\|denied\|Input/output" secure_mount a 4.2 /mnt/a none /mtls
step "the gateway lives" gateway_alive
