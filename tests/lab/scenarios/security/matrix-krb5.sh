# title: Kerberos (krb5), plain, with TLS and with mutual TLS, over every version of NFS
# seconds: 1200
# ci: no

. /lab/guest/matrix.sh
matrix_start krb5
cells
matrix_end
