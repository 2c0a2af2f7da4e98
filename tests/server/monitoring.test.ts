/** What is shipped for Prometheus and Grafana, against what a real server shows, with Prometheus' own tools. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parseScrape, type Scrape, scrape } from "../helpers/scrape.js";
import { useServer } from "../helpers/use-server.js";

const root = fileURLToPath(new URL("../..", import.meta.url));
const ALERTS = join(root, "deploy/prometheus/alerts.yml");
const alerts = readFileSync(ALERTS, "utf8");
const dashboardText = readFileSync(join(root, "deploy/grafana/holdfast.json"), "utf8");

interface Panel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly gridPos: { readonly x: number; readonly w: number };
  readonly datasource?: { readonly uid: string };
  readonly targets?: readonly { readonly refId: string; readonly expr: string; readonly datasource: { uid: string } }[];
}
const dashboard = JSON.parse(dashboardText) as {
  readonly schemaVersion: number;
  readonly panels: readonly Panel[];
  readonly templating: { readonly list: readonly { readonly name: string; readonly type: string }[] };
};
const targets = dashboard.panels.flatMap((panel) => panel.targets ?? []);

let directory = "";
let now: Scrape = parseScrape("");
const server = useServer();
beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), "holdfast-rules-"));
  // Routes are there from the first request on.
  await server.call("GET", "/v1/host");
  now = await scrape(server);
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

function promtool(...args: string[]): string {
  return execFileSync("promtool", args, { encoding: "utf8", stdio: "pipe" });
}

/** JSON is YAML. */
function writeYaml(name: string, content: object): string {
  const path = join(directory, name);
  writeFileSync(path, JSON.stringify(content));
  return path;
}

const isHistogram = (name: string): boolean => now.text.includes(`# TYPE ${name} histogram\n`);

/** Of metrics, as they are declared. */
function namesIn(text: string): string[] {
  const words = text.match(/\b(?:holdfast|process|nodejs)_[a-z0-9_]+\b/g) ?? [];
  const declared = words.map((word) => {
    const base = word.replace(/_(?:bucket|sum|count)$/, "");
    return isHistogram(base) ? base : word;
  });
  return [...new Set(declared)].sort();
}

const inDashboard = () => namesIn(targets.map(({ expr }) => expr).join("\n"));

describe("the alerts", () => {
  test("are rules, and the example finds them", () => {
    expect(promtool("check", "rules", "--lint=all", "--lint-fatal", ALERTS)).toContain("SUCCESS");
    expect(promtool("check", "config", join(root, "deploy/prometheus/prometheus.yml"))).toContain("SUCCESS");
  });

  test("ask for what there is", () => {
    const used = namesIn(alerts.replace(/description: >-[\s\S]*?(?=\n\s*- alert:|$)/g, ""));
    expect(used.length).toBeGreaterThan(15);
    expect(used.filter((name) => !now.names.includes(name))).toEqual([]);
  });

  test("say what has happened and what to do", () => {
    const rules = alerts.split("- alert: ").slice(1);
    expect(rules.length).toBeGreaterThan(10);
    for (const rule of rules) {
      expect(rule).toMatch(/severity: (?:critical|warning|info)\n/);
      expect(rule).toMatch(/summary: \S.{10,}\n/);
      expect(/description: >-\n([\s\S]+)/.exec(rule)?.[1]?.length).toBeGreaterThan(60);
    }
  });

  /** A host on which all is well: constant, or a counter that grows by so much each minute. */
  const WELL: Readonly<Record<string, string>> = {
    up: "1x60",
    holdfast_unknown_causes_total: "0x60",
    'holdfast_sandbox_endings_total{cause="killed"}': "0+10x60",
    'holdfast_sandbox_endings_total{cause="lost"}': "0x60",
    'holdfast_command_endings_total{cause="exited"}': "0+100x60",
    'holdfast_command_endings_total{cause="out_of_memory"}': "0+1x60",
    'holdfast_command_endings_total{cause="lost"}': "0x60",
    'holdfast_command_incidents_total{kind="out_of_memory"}': "0+1x60",
    'holdfast_clean_up_failures_total{what="sandbox"}': "0x60",
    holdfast_memory_reserved_bytes: "85x60",
    holdfast_memory_capacity_bytes: "100x60",
    holdfast_memory_room_bytes: "90x60",
    holdfast_disk_reserved_bytes: "10x60",
    holdfast_disk_capacity_bytes: "100x60",
    holdfast_pids_available: "60x60",
    holdfast_pids_host: "100x60",
    holdfast_pids_reserved: "50x60",
    holdfast_pids_capacity: "100x60",
    'holdfast_queue_wait_seconds_bucket{outcome="admitted",le="10"}': "0+5x60",
    'holdfast_queue_wait_seconds_bucket{outcome="admitted",le="60"}': "0+5x60",
    'holdfast_queue_wait_seconds_bucket{outcome="admitted",le="+Inf"}': "0+5x60",
    holdfast_queue_length: "0x4 3x3 0x60",
    'holdfast_create_failures_total{code="host_capacity"}': "0x60",
    'holdfast_create_failures_total{code="engine_fault"}': "0x60",
    'holdfast_create_failures_total{code="invalid_argument"}': "0+9x60",
    holdfast_pool_hits_total: "0+9x60",
    holdfast_pool_misses_total: "0+1x60",
    holdfast_pressure_stage: "0x60",
    holdfast_pressure_frozen_total: "3x60",
    'holdfast_pressure_refused_total{work="create",code="host_pressure",scope="host"}': "2x60",
    'holdfast_pressure_refused_total{work="command",code="pid_pressure",scope="sandbox"}': "0+9x60",
    'holdfast_create_seconds_bucket{how="cold",le="1"}': "0+10x60",
    'holdfast_create_seconds_bucket{how="cold",le="5"}': "0+10x60",
    'holdfast_create_seconds_bucket{how="cold",le="+Inf"}': "0+10x60",
    'holdfast_scrape_failures_total{part="host"}': "0x60",
  };

  const CASES: readonly (readonly [fires: string, but: Readonly<Record<string, string>>])[] = [
    ["HoldfastAbsent", { up: "1x30 0x30" }],
    ["HoldfastAbsent", { up: "1x30 stale" }],
    ["HoldfastUnknownCause", { holdfast_unknown_causes_total: "0x50 1x10" }],
    ["HoldfastEndingsLost", { 'holdfast_sandbox_endings_total{cause="lost"}': "0x50 1x10" }],
    ["HoldfastEndingsLost", { 'holdfast_command_endings_total{cause="lost"}': "0x50 2x10" }],
    ["HoldfastCleanUpFails", { 'holdfast_clean_up_failures_total{what="sandbox"}': "0x50 1x10" }],
    ["HoldfastMemoryPromised", { holdfast_memory_reserved_bytes: "95x60", holdfast_memory_room_bytes: "98x60" }],
    ["HoldfastRoomBelowPromises", { holdfast_memory_room_bytes: "80x60" }],
    ["HoldfastDiskPromised", { holdfast_disk_reserved_bytes: "91x60" }],
    ["HoldfastPidsHigh", { holdfast_pids_available: "19x60" }],
    ["HoldfastPidsHigh", { holdfast_pids_reserved: "81x60" }],
    ["HoldfastQueueSlow", { 'holdfast_queue_wait_seconds_bucket{outcome="admitted",le="10"}': "0x60" }],
    ["HoldfastQueueStands", { holdfast_queue_length: "2x60" }],
    ["HoldfastRefused", { 'holdfast_create_failures_total{code="host_capacity"}': "0+1x60" }],
    ["HoldfastCreatesFail", { 'holdfast_create_failures_total{code="engine_fault"}': "0x55 1x5" }],
    ["HoldfastOutOfMemory", { 'holdfast_command_endings_total{cause="out_of_memory"}': "0+10x60" }],
    ["HoldfastOutOfMemory", { 'holdfast_command_incidents_total{kind="out_of_memory"}': "0+10x60" }],
    ["HoldfastPoolMisses", { holdfast_pool_misses_total: "0+5x60" }],
    ["HoldfastUnderPressure", { holdfast_pressure_stage: "2x60" }],
    [
      "HoldfastPressureRefuses",
      { 'holdfast_pressure_refused_total{work="create",code="host_pressure",scope="host"}': "0+1x60" },
    ],
    ["HoldfastFreezes", { holdfast_pressure_frozen_total: "0+1x60" }],
    ["HoldfastSlowStart", { 'holdfast_create_seconds_bucket{how="cold",le="1"}': "0+1x60" }],
    ["HoldfastScrapeIncomplete", { 'holdfast_scrape_failures_total{part="host"}': "0+1x60" }],
  ];

  const withInstance = (series: string): string => {
    const [, name, labels] = /^([a-z_]+)(?:\{(.*)\})?$/.exec(series) ?? [];
    return `${name}{${labels === undefined ? "" : `${labels},`}instance="one:3000",job="holdfast"}`;
  };
  const unitTest = (name: string, but: Readonly<Record<string, string>>, fires: readonly string[]) => ({
    name,
    interval: "1m",
    input_series: Object.entries({ ...WELL, ...but }).map(([series, values]) => ({
      series: withInstance(series),
      values,
    })),
    promql_expr_test: [
      {
        expr: 'count by (alertname) (ALERTS{alertstate="firing"})',
        eval_time: "58m",
        exp_samples: fires.map((alertname) => ({ labels: `{alertname="${alertname}"}`, value: 1 })),
      },
    ],
  });
  const runTests = (tests: readonly object[]): string =>
    promtool("test", "rules", writeYaml("tests.yml", { rule_files: [ALERTS], evaluation_interval: "1m", tests }));

  test("are silent when all is well", () => {
    expect(runTests([unitTest("well", {}, [])])).toContain("SUCCESS");
  });

  test.each(CASES)("%s fires, and no other does, with %j", (alert, but) => {
    expect(runTests([unitTest(alert, but, [alert])])).toContain("SUCCESS");
  });

  test("are all tried", () => {
    const names = [...alerts.matchAll(/- alert: (\w+)/g)].map(([, name]) => name ?? "");
    expect([...new Set(CASES.map(([name]) => name))].sort()).toEqual(names.sort());
  });

  test("put the numbers into their words", () => {
    const { promql_expr_test: _, ...host } = unitTest("words", { holdfast_disk_reserved_bytes: "95x60" }, []);
    const expected = {
      exp_labels: { severity: "warning", instance: "one:3000", job: "holdfast" },
      exp_annotations: {
        summary: "95% of the disk of one:3000 is promised",
        description:
          "New sandboxes will have to wait. End paused ones that nobody comes back for, remove images that nobody uses (`holdfast image prune`), or make the pool larger.",
      },
    };
    const words = {
      ...host,
      alert_rule_test: [{ eval_time: "58m", alertname: "HoldfastDiskPromised", exp_alerts: [expected] }],
    };
    expect(runTests([words])).toContain("SUCCESS");
  });
});

describe("the dashboard", () => {
  test("asks only for what there is, in words that Prometheus understands", () => {
    expect(targets.length).toBeGreaterThan(40);
    expect(inDashboard().filter((name) => !now.names.includes(name))).toEqual([]);
    const rules = targets.map(({ expr }, index) => ({
      record: `panel:expression:${index}`,
      expr: expr.replaceAll("$__rate_interval", "5m").replaceAll("$__range", "1h").replaceAll("$instance", ".*"),
    }));
    expect(rules.some(({ expr }) => expr.includes("$"))).toBe(false);
    const path = writeYaml("dashboard.yml", { groups: [{ name: "dashboard", rules }] });
    expect(promtool("check", "rules", path)).toContain("SUCCESS");
  });

  test("shows all that Holdfast counts", () => {
    expect(now.names.filter((name) => !inDashboard().includes(name))).toEqual([]);
  });

  test("takes its data source from a variable, and its panels stand beside each other", () => {
    expect(dashboard.schemaVersion).toBeLessThanOrEqual(38);
    expect(dashboard.templating.list).toContainEqual(
      expect.objectContaining({ name: "datasource", type: "datasource" }),
    );
    const uids = [...targets, ...dashboard.panels].flatMap(({ datasource }) => datasource?.uid ?? []);
    expect(new Set(uids)).toEqual(new Set(["$" + "{datasource}"]));
    expect(new Set(dashboard.panels.map(({ id }) => id)).size).toBe(dashboard.panels.length);
    expect(dashboard.panels.filter(({ gridPos }) => gridPos.x + gridPos.w > 24)).toEqual([]);
    for (const { targets = [], title } of dashboard.panels) {
      expect(new Set(targets.map(({ refId }) => refId)).size, title).toBe(targets.length);
    }
  });
});

test("docs/metrics.md explains every metric, with its kind and its labels, and no other", () => {
  const rows = readFileSync(join(root, "docs/metrics.md"), "utf8").matchAll(
    /^\| `([a-z0-9_]+)` \| (\w+) \| (.*?) \| (.+) \|$/gm,
  );
  const documented = [...rows].map(([, name, kind, labels = ""]) => {
    return `${name} ${kind} ${[...labels.matchAll(/`(\w+)`/g)].map(([, label]) => label).sort()}`;
  });
  const real = [...now.text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name = "", kind = ""]) => {
    const series = [...now.text.matchAll(new RegExp(`^${name}(?:_bucket)?\\{(.*)\\} `, "gm"))];
    const labels = new Set(
      series.flatMap(([, all = ""]) => [...all.matchAll(/(\w+)="/g)].map(([, label]) => label ?? "")),
    );
    labels.delete("le");
    return `${name} ${kind} ${[...labels].sort()}`;
  });
  expect(documented.sort()).toEqual(real.sort());
});
