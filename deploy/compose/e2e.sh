#!/usr/bin/env bash
# Brings the compose stack up from images that are built here, sees its seed job and one more job finish, kills four services on the way, and takes everything
# down. It is docker-compose.yml itself; lab.yml replaces the images that would be pulled: NATS and InfluxDB (1.8 for 2.7) are built from Go modules, Prometheus
# is Debian's, services have no base. Grafana alone is left out.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)

compose=$(docker compose version >/dev/null 2>&1 && echo 'docker compose' || echo docker-compose)
if ! docker info >/dev/null 2>&1; then
    echo 'nothing was tested: no Docker engine answers (Debian: apt-get install docker.io docker-compose; DOCKER_HOST names another one)' >&2
    exit 1
fi
command -v "${compose%% *}" >/dev/null || { echo 'docker-compose is missing (Debian: apt-get install docker-compose)'; exit 1; }

# folder NAME: where the one program of an image goes, below the file system of that image.
folder() {
    local dir=$root/bin/image/$1
    mkdir -p "$dir/usr/local/bin" "$dir/data" "$dir/tmp"
    ln -sf "usr/local/bin/$1" "$dir/entrypoint"
    echo "$dir/usr/local/bin"
}
# probe NAME: the program that asks for the health of NATS and the others, which their own images have.
probe() { mkdir -p "$root/bin/image/$1/usr/bin" && cp "$busybox" "$root/bin/image/$1/usr/bin/wget"; }
busybox=$(command -v busybox) || { echo 'busybox is missing (Debian: apt-get install busybox-static)' >&2; exit 1; }
prometheus=$(command -v prometheus) || { echo 'prometheus is missing (Debian: apt-get install prometheus)' >&2; exit 1; }
cp "$prometheus" "$(folder prometheus)/"
ldd "$prometheus" | grep -o '/[^ ]*' | while read -r library; do
    mkdir -p "$root/bin/image/prometheus$(dirname "$library")" && cp -L "$library" "$root/bin/image/prometheus$library"
done
# Both of the versions that go.mod and go.influxd.mod pin.
(cd "$root" && CGO_ENABLED=0 go build -o "$(folder nats-server)/nats-server" github.com/nats-io/nats-server/v2)
make -C "$root" bin/influxd && cp "$root/bin/influxd" "$(folder influxd)/"
for name in nats-server influxd prometheus; do probe $name; done
(cd "$root/deploy/devcluster" && CGO_ENABLED=0 go build -o "$(folder pause)/" ./pause)
for service in admission profiler planner executor nodeagent energy experiments web switchyard; do
    make -C "$root" image-root SERVICE=$service CGO=0
done

export DOCKER_BUILDKIT=0 COMPOSE_DOCKER_CLI_BUILD=0 COMPOSE_PROJECT_NAME=switchyard-e2e
stack() { $compose -f docker-compose.yml -f lab.yml "$@"; }
finish() {
    status=$?
    [ $status = 0 ] || stack logs --tail=40
    stack down -v --remove-orphans >/dev/null 2>&1
    exit $status
}
trap finish EXIT
# What a run that was cut off left behind must not pass for this one's.
stack down -v --remove-orphans >/dev/null 2>&1
stack build -q
stack up -d seed energy experiments profiler web influx-setup prometheus

yard() { stack run --rm --no-deps -T seed "$@"; }
for try in $(seq 60); do
    yard ps 2>/dev/null | grep -q first-job && break
    [ "$try" != 60 ] || { echo 'the seed job was never seen'; exit 1; }
    sleep 1
done
for try in $(seq 60); do
    # Prometheus answers one line, with a label health for each target.
    health=$(curl -sf 'http://127.0.0.1:9090/api/v1/targets?state=active' | grep -o '"health":"[a-z]*"' | sort | uniq -c | xargs) || true
    [ "$health" != '8 health:up' ] || break
    [ "$try" != 60 ] || { echo "Prometheus does not reach all eight processes: $health"; exit 1; }
    sleep 1
done
stack kill planner && stack start planner
yard submit /examples/digits.yaml --id second-job --epochs 400
# The executor's jobs end with its container, and go on from their checkpoints; the node agent need not know.
for try in $(seq 60); do
    [[ $(yard logs second-job 2>/dev/null) != *'epoch 2/'* ]] || break
    [ "$try" != 60 ] || { echo 'the second job was never seen to train'; exit 1; }
    sleep 1
done
stack kill executor && stack start executor
stack kill nodeagent && stack start nodeagent
stack kill admission && stack start admission
yard wait --timeout 8m first-job second-job
yard describe second-job
yard ps
for job in first-job second-job; do
    # Into a variable: a pipe that grep closes early would count as a failure.
    told=$(yard logs "$job")
    [ -n "$told" ] || { echo "job $job has no log"; exit 1; }
done
[[ $told == *'attempt 2 of second-job'* ]] || { echo 'the second job was not begun again after the end of the executor'; exit 1; }
echo 'ok: both jobs trained to their end on the compose stack'
