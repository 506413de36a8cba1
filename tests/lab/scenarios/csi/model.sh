# title: a model in pods: read-only volumes from a dataset, and the loader without a mount; a dataset of another driver
# seconds: 900
# ci: no

. /lab/guest/csi.sh
. /lab/guest/volumes.sh
STEP_SECONDS=300
COUNT=2
csi_program kubelet
csi_start
MODEL=/scratch/lab/models/llama

# A safetensors file and its small companions, in a dataset of their own.
model_made() {
    zfs create lab/models
    zfs create -o recordsize=1M lab/models/llama
    python3 - "$MODEL" <<'END'
import json, os, struct, sys
length = 24 << 20
header = {f"layer.{n}.weight": {"dtype": "BF16", "shape": [1024, 1024],
          "data_offsets": [n << 21, (n + 1) << 21]} for n in range(length >> 21)}
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open(sys.argv[1] + "/model.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + os.urandom(length))
END
    echo '{"architectures": ["LlamaForCausalLM"]}' >"$MODEL/config.json"
    echo '{}' >"$MODEL/tokenizer.json"
    (cd "$MODEL" && sha256sum -- * >/tmp/sums && cp /tmp/sums SHA256SUMS)
    zfs snapshot lab/models/llama@v1
}
# reader WORK NAME DATASET OPTION…: claims of a class like deploy/kubernetes/examples/vllm/mounted.yaml.
reader() { kubelet nfs "$1" --name "$2" --access rox --parameter readOnly=true --parameter "dataset=$3" "${@:4}"; }
checked() {
    local one
    for one in "$CSI_DIR"/pods/"$1"-nfs-*/target; do
        (cd "$one" && sha256sum --quiet -c /tmp/sums)
        refused "Read-only" touch "$one/new"
    done
}
claims_of_the_dataset() {
    reader up now lab/models/llama
    checked now
    # Clones: the bytes are there once.
    [ "$(zfs get -Hp -o value used lab/k8s/now-nfs-0)" -lt $((2 << 20)) ] || fail "it is a copy"
}
claims_of_a_snapshot() {
    echo newer >"$MODEL/config.json"
    reader up then lab/models/llama@v1
    checked then
    checked now
}
not_allowed() {
    zfs create lab/secret
    refused "not allowed" reader up wrong lab/secret --patience 0 --count 1
}
# A node cannot write past the mount either: the gateway refuses it.
refused_by_the_gateway() {
    mkdir -p /mnt/around
    mount -t nfs4 -o vers=4.2,port=2049 "$ADDRESS:/k8s/now-nfs-0" /mnt/around
    refused "Read-only\|Permission" touch /mnt/around/new
    umount /mnt/around
}
# As deploy/kubernetes/examples/vllm/loaded.yaml: small files by a copy, the tensors by the loader.
loaded() {
    mkdir -p /tmp/loaded
    cp /tmp/sums "$MODEL/SHA256SUMS"
    "$ZGATE" load "nfs://$ADDRESS/export/lab/models/llama" --verify --json >"$RESULT/load.json"
    for file in config.json tokenizer.json model.safetensors; do
        "$ZGATE" cp "nfs://$ADDRESS/export/lab/models/llama/$file" "/tmp/loaded/$file"
        cmp "$MODEL/$file" "/tmp/loaded/$file"
    done
}
# docs/KUBERNETES.md, "From democratic-csi": without a copy.
taken_over() {
    zfs create -p -o refquota=64M lab/democratic/pvc-0a1b
    pattern /scratch/lab/democratic/pvc-0a1b/data 4
    cp /scratch/lab/democratic/pvc-0a1b/data /tmp/data
    zfs rename lab/democratic/pvc-0a1b lab/k8s/old-nfs-0
    zfs set zgate:owner=lab zgate:volume=old-nfs-0 lab/k8s/old-nfs-0
    kubelet nfs up --name old --access rwx --count 1
    cmp /tmp/data "$CSI_DIR/pods/old-nfs-0/target/data"
    echo new >"$CSI_DIR/pods/old-nfs-0/target/new"
    kubelet nfs expand --name old --count 1 --bytes $((96 << 20))
    same $((96 << 20)) "$(zfs get -Hp -o value refquota lab/k8s/old-nfs-0)" refquota
    kubelet nfs down-node --name old --count 1
    kubelet nfs delete --name old --count 1
    zfs destroy -r lab/democratic
}
ended() {
    for name in now then; do
        kubelet nfs down-node --name $name
        kubelet nfs delete --name $name
    done
    csi_nothing_left
    same "lab/models/llama@v1" "$(zfs list -Hr -t snapshot -o name lab/models | xargs)" "snapshots of the models"
}

step "a dataset with a model" model_made
step "volumes of its present content for two pods" claims_of_the_dataset
step "volumes of its snapshot" claims_of_a_snapshot
step "a dataset that is not allowed" not_allowed
step "the gateway refuses writes" refused_by_the_gateway
step "the loader reads without a mount" loaded
step "a dataset of another driver is taken over" taken_over
step "nothing is left" ended
conclude
