/**
 * The server's own process, by the names that everybody knows. Not the library's: it leaves an observer of the garbage
 * collector and a clock of the event loop behind, for as long as the process lives.
 */
import { readdirSync } from "node:fs";
import { type IntervalHistogram, monitorEventLoopDelay } from "node:perf_hooks";
import { Counter, Gauge, type Registry } from "prom-client";
import type { Reading } from "./exposition.js";

const LAG_RESOLUTION_MS = 20;
const NS = 1e9;

export function processGauges(registry: Registry): Reading {
  const gauge = (name: string, help: string) => new Gauge({ name, help, registers: [registry] });
  const cpu = new Counter({
    name: "process_cpu_seconds_total",
    help: "CPU time of the server, user and system",
    registers: [registry],
  });
  const startTime = gauge("process_start_time_seconds", "When the server started, in seconds since 1970");
  const resident = gauge("process_resident_memory_bytes", "Memory that the server holds");
  const descriptors = gauge("process_open_fds", "Open file descriptors of the server");
  const heap = gauge("nodejs_heap_size_used_bytes", "JavaScript heap in use");
  const lag = gauge(
    "nodejs_eventloop_lag_p99_seconds",
    "How late the event loop was, 99th percentile since the last scrape",
  );
  const lagMax = gauge(
    "nodejs_eventloop_lag_max_seconds",
    "How late the event loop was at worst since the last scrape",
  );
  const delay: IntervalHistogram = monitorEventLoopDelay({ resolution: LAG_RESOLUTION_MS });
  delay.enable();
  let counted = 0;
  return {
    part: "process",
    gauges: [startTime, resident, descriptors, heap, lag, lagMax],
    async read() {
      const { user, system } = process.cpuUsage();
      const seconds = (user + system) / 1e6;
      cpu.inc(Math.max(0, seconds - counted));
      counted = Math.max(counted, seconds);
      startTime.set(Math.round(Date.now() / 1000 - process.uptime()));
      const { rss, heapUsed } = process.memoryUsage();
      resident.set(rss);
      heap.set(heapUsed);
      descriptors.set(readdirSync("/proc/self/fd").length);
      // Without a look yet there is no number, and the resolution is part of every one.
      const late = (ns: number) => Math.max(0, (Number.isFinite(ns) ? ns : 0) / NS - LAG_RESOLUTION_MS / 1000);
      lag.set(late(delay.percentile(99)));
      lagMax.set(late(delay.max));
      delay.reset();
    },
    close: () => delay.disable(),
  };
}
