#!/usr/bin/env bash
# Checks and times the CUDA kernels on a machine that has a GPU and its driver, and nothing else of ours.
#
#   bench/gpu.sh pack BUILD FOLDER    here: copies what the other machine needs from the build folder, stripped
#   bench/gpu.sh run FOLDER [OUT]     there, in the repository's root: op tests, golden files, sanitizers, benchmark
#
# `run` writes a log per step to OUT (a new folder under /tmp) and prints a summary. CUDA_BENCH_ONLY=PART times the cases
# whose name has PART; GPU_STEPS="ops golden bench prefill decode engine torch memcheck racecheck" chooses steps.
# Of these prefill, decode and engine measure the model of MODEL_BENCH (v41-flash:12) as a whole.
set -euo pipefail

programs=(tests/ops/cuda_ops_test tests/ops/cuda_golden_test bench/cuda_bench deepinfer)

pack() {
  local build=$1 folder=$2 program
  mkdir -p "$folder"
  for program in "${programs[@]}"; do
    strip -o "$folder/$(basename "$program")" "$build/$program"
    gzip -f "$folder/$(basename "$program")"
  done
}

# step NAME SECONDS COMMAND...: its output to OUT/NAME.log, one line here.
step() {
  local name=$1 seconds=$2 status=0 begin=$SECONDS
  shift 2
  timeout "$seconds" "$@" >"$out/$name.log" 2>&1 || status=$?
  printf '%-10s exit %-3s %4d s  %s\n' "$name" "$status" $((SECONDS - begin)) "$(tail -n 1 "$out/$name.log" | cut -c 1-150)"
}

# sanitise TOOL SECONDS SANITIZER TESTS: in parts side by side, since all of it takes half an hour; one line here.
sanitise() {
  local tool=$1 seconds=$2 sanitizer=$3 tests=$4 begin=$SECONDS part parts=16
  for ((part = 0; part < parts; ++part)); do
    # CudaLimits expects a bandwidth; the other provokes an error of the driver.
    GTEST_TOTAL_SHARDS=$parts GTEST_SHARD_INDEX=$part timeout -s INT "$seconds" "$sanitizer" --tool "$tool" \
      "$tests" --gtest_filter="${SANITIZER_FILTER:-*}-CudaLimits.*:*NoRoomIsAnError*" >"$out/$tool.$part.part" 2>&1 &
  done
  wait
  cat "$out/$tool".*.part >"$out/$tool.log"
  rm -f "$out/$tool".*.part
  printf '%-10s %d tests begun, %d passed, %d parts ended, %d of them without a report, %d s\n' "$tool" \
    "$(grep -c '^\[ RUN' "$out/$tool.log")" "$(grep -c '^\[       OK' "$out/$tool.log")" \
    "$(grep -cE '(ERROR|RACECHECK) SUMMARY' "$out/$tool.log")" \
    "$(grep -cE '(ERROR SUMMARY: 0 |RACECHECK SUMMARY: 0 )' "$out/$tool.log")" $((SECONDS - begin))
}

run() {
  local folder=$1 program bin cublas model=${MODEL_BENCH:-v41-flash:12}
  local steps=${GPU_STEPS:-ops golden bench prefill decode engine torch memcheck racecheck}
  out=${2:-$(mktemp -d /tmp/deepinfer-gpu.XXXX)}
  bin=$(mktemp -d /tmp/deepinfer-bin.XXXX)
  for program in "$folder"/*.gz; do
    gunzip -c "$program" >"$bin/$(basename "$program" .gz)"
  done
  chmod +x "$bin"/*
  nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,clocks.max.mem --format=csv || true
  cublas=$(find /usr /opt -name 'libcublas.so.1[23]' 2>/dev/null | head -n 1)
  # cuBLAS finds its other half beside itself.
  export LD_LIBRARY_PATH=${cublas:+$(dirname "$cublas"):}${LD_LIBRARY_PATH:-}
  local sanitizer
  sanitizer=$(command -v compute-sanitizer || find /usr/local /opt -name compute-sanitizer -type f 2>/dev/null | head -n 1)
  for name in $steps; do
    case $name in
      ops) step ops 200 "$bin/cuda_ops_test" --gtest_brief=1 ;;
      golden) step golden 200 "$bin/cuda_golden_test" ;;
      bench) step bench 240 "$bin/cuda_bench" --cublas="${cublas:-libcublas.so.13}" --only="${CUDA_BENCH_ONLY:-}" ;;
      prefill) step prefill 300 "$bin/deepinfer" bench --synthetic "$model" --device cuda -p 8192 -n 0 ;;
      decode)
        step decode 400 "$bin/deepinfer" bench --synthetic "$model" --device cuda -p 0 -n 32 -d 32768 --depth-filled \
          -b 1,16,64
        ;;
      engine)
        step engine 300 "$bin/deepinfer" bench throughput --synthetic "$model" --device cuda --max-num-seqs 16 \
          --num-prompts 16 --input-len 32 --output-len 64 --ctx 2048
        ;;
      torch) step torch 120 python3 bench/torch_layer.py 1 16 4096 ;;
      memcheck | racecheck)
        if [ -z "$sanitizer" ]; then
          echo "$name: no compute-sanitizer here"
          continue
        fi
        sanitise "$name" 190 "$sanitizer" "$bin/cuda_ops_test"
        ;;
    esac
  done
  for name in bench prefill decode engine torch; do
    [ ! -f "$out/$name.log" ] || cat "$out/$name.log"
  done
  for name in $steps; do
    grep -E 'Failure|FAILED|error:|Error' -A 4 "$out/$name.log" 2>/dev/null | head -n 60 || true
  done
}

case ${1:-} in
  pack) pack "$2" "$3" ;;
  run) run "$2" "${3:-}" ;;
  *)
    sed -n '2,9s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
