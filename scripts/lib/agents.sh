# What the tests of agents have in common that run under somebody else's scheduler: a server, and
# what its access log says beside what the agents say. To be sourced, by bash, from the repository's
# root; sets `dir`, a directory that goes with the script, and `hearken`.
dir=$(mktemp -d)
agents_pids=()

agents_end() {
    local status=$? pid
    trap - EXIT
    for pid in "${agents_pids[@]}"; do
        kill "$pid" 2>/dev/null || true
    done
    for pid in "${agents_pids[@]}"; do
        # One that does not end by itself leaves nothing behind either.
        timeout 10 tail --pid "$pid" -f /dev/null || kill -9 "$pid" 2>/dev/null || true
    done
    wait || true
    [[ $status == 0 ]] || tail -n 20 "$dir"/*.log "$dir"/*.err >&2 2>/dev/null || true
    rm -rf "$dir"
    exit "$status"
}
trap agents_end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

agents_fail() {
    echo "$0: $*" >&2
    exit 1
}

# Ends with 0, and says so, where something is missing.
agents_need() { # package command...
    local package=$1 command missing=()
    shift
    for command in "$@"; do
        command -v "$command" >/dev/null || missing+=("$command")
    done
    [[ ${#missing[@]} -eq 0 ]] && return
    echo "$0: not run: ${missing[*]} not installed (apt-get install --no-install-recommends $package)"
    exit 0
}

# Runs a command that is ended with the script.
agents_run() { # name command...
    local name=$1
    shift
    "$@" >"$dir/$name.log" 2>&1 </dev/null &
    agents_pids+=($!)
}

# Until a command succeeds.
agents_await() { # what command...
    local what=$1
    shift
    for _ in $(seq 200); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.1
    done
    agents_fail "$what did not come up"
}

# The program, and a server of one file; sets `hearken` and `url`.
agents_server() {
    cargo build --quiet --locked -p hearken-cli
    hearken=${CARGO_TARGET_DIR:-target}/debug/hearken
    mkdir "$dir/site"
    echo x >"$dir/site/1b"
    agents_run serve "$hearken" serve "$dir/site" --listen 127.0.0.1:0 --access-log "$dir/access"
    agents_await 'the server' grep -q '^listening on ' "$dir/serve.log"
    url=$(sed -n 's|^listening on \(http://[^ ]*\) .*|\1/1b|p' "$dir/serve.log")
}

# A number in a result.
agents_count() { # file key
    sed -n "s/^ *\"$2\": \([0-9]*\),\{0,1\}\$/\1/p" "$1" | head -n 1
}

# Runs a load, which must end with a status.
agents_load() { # status argument...
    local expected=$1 status=0
    shift
    timeout 120 "$hearken" load "$@" >"$dir/load.out" 2>"$dir/load.err" </dev/null || status=$?
    [[ $status == "$expected" ]] || agents_fail "hearken load $*: status $status, not $expected"
}

# The server's log has as many requests as there were replies; it starts anew. Of a load that was
# interrupted, some of those that were sent may have been answered too late.
agents_counts_agree() { # [interrupted]
    local intended replies sent served=0
    intended=$(agents_count "$dir/load.out" intended)
    replies=$(agents_count "$dir/load.out" replies)
    sent=$(agents_count "$dir/load.out" sent)
    [[ -n $replies && $replies -gt 0 ]] || agents_fail 'there was no reply'
    # A line is written after the answer.
    for _ in $(seq 50); do
        served=$(wc -l <"$dir/access")
        [[ $served -ge $replies ]] && break
        sleep 0.1
    done
    if [[ ${1-} == interrupted ]]; then
        [[ $replies -le $served && $served -le $sent ]] ||
            agents_fail "$replies replies to $sent requests, and the server's log has $served"
    else
        [[ $served == "$replies" && $intended == "$replies" ]] ||
            agents_fail "$replies replies to $intended requests, and the server's log has $served"
    fi
    : >"$dir/access"
}

# All that is asked of agents wherever they run: `rank` is the variable that tells an agent's.
agents_checks() { # variable argument...
    local variable=$1 load size=3
    shift
    agents_load 0 "$url" --rate 600 --duration 2s --json - "$@"
    agents_counts_agree
    [[ $(grep -c '"rank": ' "$dir/load.out") == "$size" ]] || agents_fail 'not all parts are told of'

    # One that cannot do as asked fails all, with its rank.
    cat >"$dir/late" <<END
#!/bin/sh
[ "\$$variable" != 1 ] || set -- "\$@" --start-at 1000000000
exec "$(realpath "$hearken")" "\$@"
END
    chmod +x "$dir/late"
    agents_load 2 "$url" --rate 60 --duration 60s --agent-binary "$dir/late" "$@"
    grep -q 'rank 1 of 3: the start was at 2001' "$dir/load.err" || agents_fail 'the reason is not told'
    [[ ! -s $dir/load.out ]] || agents_fail 'a load that failed has a result'
    : >"$dir/access"

    # An interrupted one ends with what it has.
    "$hearken" load "$url" --rate 600 --duration 60s --json - "$@" \
        >"$dir/load.out" 2>"$dir/load.err" </dev/null &
    load=$!
    agents_pids+=("$load")
    agents_await 'the load' test -s "$dir/access"
    kill -INT "$load"
    wait "$load" || agents_fail "the load that was interrupted ended with $?"
    grep -q '"complete": false' "$dir/load.out" || agents_fail 'it is not told that it was interrupted'
    agents_counts_agree interrupted
}

# What merge says where a rank's result is not there.
agents_missing_is_seen() { # files with the results of ranks 0, 1 and 2
    "$hearken" load merge --json "$dir/merged" "$1" "$2" "$3" >"$dir/merge.log" 2>&1 ||
        agents_fail 'the results cannot be merged'
    ! grep -q 'missing' "$dir/merge.log" || agents_fail 'merge misses what is there'
    "$hearken" load merge --json "$dir/merged" "$1" "$3" >"$dir/merge.log" 2>&1 || true
    grep -q 'rank 1' "$dir/merge.log" || agents_fail 'merge does not miss rank 1'
}
