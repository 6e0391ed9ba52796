# Common functions of the tests of agents under a scheduler. They start a server and compare its access
# log with the results of the agents. To be sourced by bash in the root of the repository. Sets `dir`, a
# temporary directory, and `hearken`.
dir=$(mktemp -d)
agents_pids=()

agents_end() {
    local status=$? pid
    trap - EXIT
    for pid in "${agents_pids[@]}"; do
        kill "$pid" 2>/dev/null || true
    done
    for pid in "${agents_pids[@]}"; do
        # Kills processes that do not exit in time.
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

# Exits with status 0 and a message if a command is missing.
agents_need() { # package command...
    local package=$1 command missing=()
    shift
    for command in "$@"; do
        command -v "$command" >/dev/null || missing+=("$command")
    done
    [[ ${#missing[@]} -eq 0 ]] && return
    echo "$0: skipped: ${missing[*]} not installed (apt-get install --no-install-recommends $package)"
    exit 0
}

# Runs a command in the background and ends it with the script.
agents_run() { # name command...
    local name=$1
    shift
    "$@" >"$dir/$name.log" 2>&1 </dev/null &
    agents_pids+=($!)
}

# Waits until a command succeeds.
agents_await() { # what command...
    local what=$1
    shift
    for _ in $(seq 200); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.1
    done
    agents_fail "$what did not start"
}

# Builds the program and starts a server with one file. Sets `hearken` and `url`.
agents_server() {
    cargo build --quiet --locked -p hearken-cli
    hearken=${CARGO_TARGET_DIR:-target}/debug/hearken
    mkdir "$dir/site"
    echo x >"$dir/site/1b"
    agents_run serve "$hearken" serve "$dir/site" --listen 127.0.0.1:0 --access-log "$dir/access"
    agents_await 'the server' grep -q '^listening on ' "$dir/serve.log"
    url=$(sed -n 's|^listening on \(http://[^ ]*\) .*|\1/1b|p' "$dir/serve.log")
}

# Prints a number from a result.
agents_count() { # file key
    sed -n "s/^ *\"$2\": \([0-9]*\),\{0,1\}\$/\1/p" "$1" | head -n 1
}

# Runs a load and checks its exit status.
agents_load() { # status argument...
    local expected=$1 status=0
    shift
    timeout 120 "$hearken" load "$@" >"$dir/load.out" 2>"$dir/load.err" </dev/null || status=$?
    [[ $status == "$expected" ]] || agents_fail "hearken load $*: exit status $status, expected $expected"
}

# Checks that the access log has as many requests as the result has replies, and truncates the log. After
# an interrupted load, some requests may have been answered too late.
agents_counts_agree() { # [interrupted]
    local scheduled replies sent served=0
    scheduled=$(agents_count "$dir/load.out" scheduled)
    replies=$(agents_count "$dir/load.out" replies)
    sent=$(agents_count "$dir/load.out" sent)
    [[ -n $replies && $replies -gt 0 ]] || agents_fail 'no replies'
    # The server writes a line after its response.
    for _ in $(seq 50); do
        served=$(wc -l <"$dir/access")
        [[ $served -ge $replies ]] && break
        sleep 0.1
    done
    if [[ ${1-} == interrupted ]]; then
        [[ $replies -le $served && $served -le $sent ]] ||
            agents_fail "$replies replies to $sent requests, but $served lines in the access log"
    else
        [[ $served == "$replies" && $scheduled == "$replies" ]] ||
            agents_fail "$replies replies to $scheduled requests, but $served lines in the access log"
    fi
    : >"$dir/access"
}

# Runs the checks for agents. `variable` is the environment variable with the rank of an agent.
agents_checks() { # variable argument...
    local variable=$1 load size=3
    shift
    agents_load 0 "$url" --rate 600 --duration 2s --json - "$@"
    agents_counts_agree
    [[ $(grep -c '"rank": ' "$dir/load.out") == "$size" ]] || agents_fail 'the result lacks parts'

    # If an agent cannot start in time, all fail, and the message names its rank.
    cat >"$dir/late" <<END
#!/bin/sh
[ "\$$variable" != 1 ] || set -- "\$@" --start-at 1000000000
exec "$(realpath "$hearken")" "\$@"
END
    chmod +x "$dir/late"
    agents_load 2 "$url" --rate 60 --duration 60s --agent-binary "$dir/late" "$@"
    grep -q 'rank 1 of 3: start time 2001' "$dir/load.err" || agents_fail 'the reason is not reported'
    [[ ! -s $dir/load.out ]] || agents_fail 'a failed load printed a result'
    : >"$dir/access"

    # An interrupted load prints a partial result.
    "$hearken" load "$url" --rate 600 --duration 60s --json - "$@" \
        >"$dir/load.out" 2>"$dir/load.err" </dev/null &
    load=$!
    agents_pids+=("$load")
    agents_await 'the load' test -s "$dir/access"
    kill -INT "$load"
    local status=0
    wait "$load" || status=$?
    [[ $status == 130 ]] || agents_fail "the interrupted load exited with $status"
    grep -q '"complete": false' "$dir/load.out" || agents_fail 'the result is not marked as incomplete'
    agents_counts_agree interrupted
}

# Checks that `load merge` detects a missing result.
agents_merge_detects_missing() { # files with the results of ranks 0, 1 and 2
    "$hearken" load merge --json "$dir/merged" "$1" "$2" "$3" >"$dir/merge.log" 2>&1 ||
        agents_fail 'the results cannot be merged'
    ! grep -q 'missing' "$dir/merge.log" || agents_fail 'merge reports a missing result, but all are given'
    "$hearken" load merge --json "$dir/merged" "$1" "$3" >"$dir/merge.log" 2>&1 || true
    grep -q 'rank 1' "$dir/merge.log" || agents_fail 'merge does not report that rank 1 is missing'
}
