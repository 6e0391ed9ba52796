#!/bin/sh
# Replaces `hearken` in tests: prints the lines that the lab waits for, and serves nothing.
# The name of the mechanism selects a failure.
json() {
    printf '{"schema":"hearken-load/4","requests":{"scheduled":100,"sent":100,"replies":%s,' "$1"
    printf '"failed":0},"reply_rate":99.5,"latency_ns":{"count":%s,"p50":1000,"p90":2000,' "$1"
    printf '"p99":3000,"p999":4000,"max":5000},"errors":{"client-timo":1},'
    printf '"idle":{"requested":%s,"open":%s,"lost":0}}\n' "$2" "$2"
}
case "$1:$*" in
serve:*--events\ broken*)
    echo "no such mechanism: broken" >&2
    exit 2
    ;;
serve:*)
    echo "listening on http://127.0.0.1:1 (fake, 1 worker)"
    exec sleep 1000
    ;;
load:*--rate\ 0*)
    file=${*#*--json }
    trap 'json 0 2 >"${file%% *}"; exit 0' TERM
    echo "holding 2 idle connections"
    while :; do sleep 0.02; done
    ;;
load:*)
    echo "prepared"
    json 100 0
    ;;
esac
