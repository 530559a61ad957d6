# git clone, push and fetch over ssh, over git's own protocol and over http.
. "$(dirname "$0")/world.sh"
export HOME=$PWD GIT_CONFIG_NOSYSTEM=1
git config --global user.name tester
git config --global user.email tester@localhost
git config --global init.defaultBranch main
git config --global --add safe.directory '*'
git init -q --bare repository.git
git init -q seed
make_file seed/large 4
for n in $(seq 300); do echo "$n" >"seed/file-$n"; done
(cd seed && git add . && git commit -qm first && git push -q ../repository.git main) >&2
git -C repository.git config http.receivepack true
git -C repository.git config daemon.receivepack true

start_sshd
beta git daemon --reuseaddr --base-path="$PWD" --export-all --enable=receive-pack </dev/null &
beta python3 "$here/git_http.py" 8080 "$PWD" </dev/null &
wait_port 9418 && wait_port 8080
export GIT_SSH_COMMAND="ssh -F $PWD/ssh_config"

clone() { alpha timeout 60 git clone -q "$2" "$1" && diff -r --exclude=.git seed "$1"; }
push() {
    echo "by $1" >"$1/new-$1" && git -C "$1" add . && git -C "$1" commit -qm "by $1" &&
        alpha timeout 60 git -C "$1" push -q origin main && git -C repository.git log -1 --format=%s main | grep -qx "by $1" &&
        cp "$1/new-$1" seed/
}
fetch() { alpha timeout 60 git -C "$1" pull -q && diff -r --exclude=.git seed "$1"; }
for way in ssh git http; do
    case $way in
    ssh) url=ssh://root@$BETA_IP$PWD/repository.git ;;
    git) url=git://$BETA_IP/repository.git ;;
    http) url=http://$BETA_IP:8080/repository.git ;;
    esac
    judge "clone over $way" clone $way "$url"
    judge "push over $way" push $way
done
judge "fetch over ssh" fetch ssh
judge "fetch over git" fetch git
