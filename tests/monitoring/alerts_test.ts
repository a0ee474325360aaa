/**
 * The alert rules of `deploy/monitoring`, by `promtool`: each fires for its fault and not for what is
 * close to it. Every name in them is one of the metric table, and every alert has its runbook.
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { parse, stringify } from "@std/yaml";
import { messageOf } from "../../lib/log/message_of.ts";
import { METRIC_ROWS } from "../support/metric_rows.ts";
import { program, testNeeding } from "../support/requirement.ts";
import { runTool } from "../support/drivers/run_tool.ts";

const ROOT = new URL("../../", import.meta.url).pathname;
const RULES = `${ROOT}deploy/monitoring/alerts.yaml`;

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly labels: { readonly severity: string };
  readonly annotations: Readonly<Record<"summary" | "description" | "runbook", string>>;
}

interface RuleFile {
  readonly groups: readonly { readonly rules: readonly Rule[] }[];
}

async function readRules(): Promise<readonly Rule[]> {
  const { groups } = parse(await Deno.readTextFile(RULES)) as RuleFile;
  return groups.flatMap(({ rules }) => rules);
}

/** Series by name and labels, with promtool's values at intervals of a minute. */
type Series = Readonly<Record<string, string>>;

/** The alert, what happens, the series, and when the alert is looked at; whether it fires. */
type Case = readonly [alert: string, what: string, series: Series, at: string, fires: boolean];

const AT = 'job="kube-proxy",instance="a:10249"';
const INFO: Series = { [`kube_relay_build_info{${AT},mode="nftables"}`]: "1x120" };
const FAMILY = `${AT},ip_family="IPv4"`;
const LOOP = `${FAMILY},controller="service"`;
const DRIFT = `kube_relay_drift_found_total{${LOOP},kind="rule"}`;
const QUEUED = `kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{${FAMILY}}`;
const SYNCED = `kubeproxy_sync_proxy_rules_last_timestamp_seconds{${FAMILY}}`;
const problems = (kind: string, values: string): Series => ({
  [`kube_relay_problems{${AT},kind="${kind}"}`]: values,
});
const assigns = (a: number, b: number): Series => ({
  [`kube_relay_routing_assigns{job="kube-proxy",instance="a:10249"}`]: `${a}x30`,
  [`kube_relay_routing_assigns{job="kube-proxy",instance="b:10249"}`]: `${b}x30`,
});

const CASES: readonly Case[] = [
  [
    "Down",
    "kube-relay stopped",
    {
      ...{ [`up{${AT}}`]: "1x10 0x30", [`kube_relay_build_info{${AT}}`]: "1x10 stale" },
    },
    "20m",
    true,
  ],
  [
    "Down",
    "kube-relay stopped yesterday",
    { [`up{${AT}}`]: "1x10 0x1800", [`kube_relay_build_info{${AT}}`]: "1x10 stale" },
    "30h",
    true,
  ],
  ["Down", "it answers", { ...INFO, [`up{${AT}}`]: "1x30" }, "20m", false],
  ["Down", "a restart", { ...INFO, [`up{${AT}}`]: "1x15 0 0 0 1x30" }, "20m", false],
  [
    "Down",
    "another program is down",
    { ...INFO, 'up{job="x",instance="b"}': "0x30" },
    "20m",
    false,
  ],
  ["Absent", "no kube-relay", { [`up{${AT}}`]: "1x30" }, "20m", true],
  ["Absent", "one of two", INFO, "20m", false],
  ["NotServing", "it waits for the API server", problems("state", "1x30"), "15m", true],
  ["NotServing", "it starts", problems("state", "1x5 0x30"), "15m", false],
  ["NotServing", "something else is wrong", problems("source", "1x30"), "15m", false],
  [
    "SyncFailing",
    "every sync fails",
    {
      ...problems("sync", "1x30"),
      [`kube_relay_controller_sync_failures_total{${LOOP}}`]: "1+1x30",
    },
    "25m",
    true,
  ],
  [
    "SyncFailing",
    "one sync failed",
    {
      ...problems("sync", "1 0x30"),
      [`kube_relay_controller_sync_failures_total{${LOOP}}`]: "0 1x30",
    },
    "25m",
    false,
  ],
  [
    "SyncOld",
    "a change waits",
    { ...INFO, [QUEUED]: "660x40", [SYNCED]: "600x40" },
    "25m",
    true,
  ],
  ["SyncOld", "no change", { ...INFO, [QUEUED]: "60x40", [SYNCED]: "61x40" }, "25m", false],
  // Always a newer request, and soon a sync.
  [
    "SyncOld",
    "many changes",
    {
      ...INFO,
      ...{ [QUEUED]: "5+60x40", [SYNCED]: "4+60x40" },
    },
    "25m",
    false,
  ],
  ["SyncOld", "a kube-proxy's own", { [QUEUED]: "660x40", [SYNCED]: "600x40" }, "25m", false],
  [
    "Quarantine",
    "a Service is refused",
    {
      [`kube_relay_controller_quarantined_items{${LOOP}}`]: "1x30",
    },
    "20m",
    true,
  ],
  [
    "Quarantine",
    "it is soon accepted",
    {
      [`kube_relay_controller_quarantined_items{${LOOP}}`]: "1x10 0x30",
    },
    "20m",
    false,
  ],
  ["DriftRepeated", "a program flushes a table every minute", { [DRIFT]: "0+1x120" }, "65m", true],
  ["DriftRepeated", "a table was flushed once", { [DRIFT]: "0x20 5x100" }, "65m", false],
  ["DriftRepeated", "a table is flushed at first", { [DRIFT]: "_x40 1+1x100" }, "62m", false],
  [
    "ConntrackNearlyFull",
    "81 %",
    {
      [`kube_relay_conntrack_entries{${AT}}`]: "81x30",
      [`kube_relay_conntrack_limit{${AT}}`]: "100x30",
    },
    "10m",
    true,
  ],
  [
    "ConntrackNearlyFull",
    "79 %",
    {
      [`kube_relay_conntrack_entries{${AT}}`]: "79x30",
      [`kube_relay_conntrack_limit{${AT}}`]: "100x30",
    },
    "10m",
    false,
  ],
  [
    "ConntrackNearlyFull",
    "without a limit",
    {
      [`kube_relay_conntrack_entries{${AT}}`]: "79x30",
      [`kube_relay_conntrack_limit{${AT}}`]: "0x30",
    },
    "10m",
    false,
  ],
  ["NoAllocator", "no node holds the Lease", assigns(0, 0), "10m", true],
  ["NoAllocator", "one node holds it", assigns(0, 1), "10m", false],
  [
    "ServicesWithoutAddress",
    "a pool is empty",
    {
      [`kube_relay_routing_refused_services{${AT}}`]: "2x30",
    },
    "15m",
    true,
  ],
  [
    "ServicesWithoutAddress",
    "all have theirs",
    {
      [`kube_relay_routing_refused_services{${AT}}`]: "0x30",
    },
    "15m",
    false,
  ],
  [
    "BgpSessionDown",
    "the peer is gone",
    {
      [`kube_relay_routing_bgp_session_up{${AT},peer="tor"}`]: "1 0x30",
    },
    "10m",
    true,
  ],
  [
    "BgpSessionDown",
    "it is established",
    {
      [`kube_relay_routing_bgp_session_up{${AT},peer="tor"}`]: "0 1x30",
    },
    "10m",
    false,
  ],
  [
    "EndpointsUnhealthy",
    "one is ejected",
    {
      [`kube_relay_userspace_endpoints{${FAMILY},state="ejected"}`]: "1x30",
      [`kube_relay_userspace_endpoints{${FAMILY},state="healthy"}`]: "2x30",
    },
    "15m",
    true,
  ],
  [
    "EndpointsUnhealthy",
    "all are healthy",
    {
      [`kube_relay_userspace_endpoints{${FAMILY},state="unhealthy"}`]: "0x30",
      [`kube_relay_userspace_endpoints{${FAMILY},state="healthy"}`]: "2x30",
    },
    "15m",
    false,
  ],
  [
    "PolicyProblem",
    "a policy has an unknown operator",
    {
      [`kube_relay_network_policy_problems{${AT},kind="policy"}`]: "1x30",
    },
    "10m",
    true,
  ],
  [
    "PolicyProblem",
    "all can be used",
    {
      [`kube_relay_network_policy_problems{${AT},kind="policy"}`]: "0x30",
    },
    "10m",
    false,
  ],
  ["SourceProblem", "a manifest is broken", problems("source", "1x30"), "20m", true],
  ["SourceProblem", "it is corrected", problems("source", "1x10 0x30"), "20m", false],
];

/** Runs a case; resolves to promtool's output if the case does not hold. */
async function judge([alert, what, series, at, fires]: Case): Promise<string | undefined> {
  const file = await Deno.makeTempFile({ suffix: ".yaml" });
  const input = Object.entries(series).map(([series, values]) => ({ series, values }));
  const expr = `count(ALERTS{alertname="KubeRelay${alert}",alertstate="firing"}) or vector(0)`;
  const expected = [{ labels: "{}", value: Number(fires) }];
  const promqlTest = { expr, "eval_time": at, "exp_samples": expected };
  await Deno.writeTextFile(
    file,
    stringify({
      "rule_files": [RULES],
      "evaluation_interval": "1m",
      tests: [{
        ...{ name: what, interval: "1m", "input_series": input },
        "promql_expr_test": [promqlTest],
      }],
    }),
  );
  try {
    await runTool("promtool", ["test", "rules", file]);
    return undefined;
  } catch (error) {
    return messageOf(error);
  } finally {
    await Deno.remove(file);
  }
}

const test = testNeeding("alerts", [program("promtool")]);

for (const each of CASES) {
  const [alert, what, , , fires] = each;
  test(`KubeRelay${alert} ${fires ? "fires" : "does not fire"}: ${what}`, async () =>
    assertEquals(await judge(each), undefined));
}

test("a case of the alerts can fail", async () => {
  const [alert, what, series, at, fires] = CASES[0]!;
  assertStringIncludes(await judge([alert, what, series, at, !fires]) ?? "", "FAILED");
});

test("promtool accepts both files of rules, which have the same rules", async () => {
  const text = await Deno.readTextFile(`${ROOT}deploy/monitoring/prometheus-rule.yaml`);
  const { kind, spec } = parse(text) as { readonly kind: string; readonly spec: RuleFile };
  assertEquals(kind, "PrometheusRule");
  assertEquals(spec, parse(await Deno.readTextFile(RULES)));
  await runTool("promtool", ["check", "rules", RULES]);
});

Deno.test("every alert has a case that fires, one that does not, and a runbook", async () => {
  const runbooks = await Deno.readTextFile(`${ROOT}docs/runbooks.md`);
  const rules = await readRules();
  for (const { alert, annotations: { runbook } } of rules) {
    const cases = CASES.filter(([name]) => `KubeRelay${name}` === alert);
    assertEquals([...new Set(cases.map(([, , , , fires]) => fires))].sort(), [false, true], alert);
    assertEquals(runbook, `docs/runbooks.md#${alert.toLowerCase()}`);
    assertStringIncludes(runbooks, `\n## ${alert}\n`);
  }
  const sections = [...runbooks.matchAll(/^## (KubeRelay\w+)$/gm)].map(([, name]) => name);
  assertEquals(sections, rules.map(({ alert }) => alert), "no section without an alert");
});

Deno.test("alerts name metrics and labels of the table only", async () => {
  const targets = ["job", "instance", "pod", "node", "endpoint", "container", "service"];
  for (const { alert, expr, annotations: { description } } of await readRules()) {
    const names = expr.match(/\bkube(proxy|_relay)_\w+/g) ?? [];
    const rows = names.map((name) => METRIC_ROWS.find((row) => row.name === name));
    assert(rows.every((row) => row !== undefined), `${alert}: ${names}`);
    const labels = rows.flatMap((row) => Object.entries(row!.labels));
    const known = [...targets, "namespace", ...labels.map(([label]) => label)];
    for (const [, label] of description.matchAll(/\$labels\.(\w+)/g)) {
      assert(known.includes(label!), `${alert} has no label ${label}`);
    }
    for (const [, label, value] of expr.matchAll(/(\w+)!?="(\w+)"/g)) {
      const values = labels.flatMap(([name, values]) => name === label ? values : []);
      assert(values.includes(value!), `${alert}: ${label}="${value}"`);
    }
  }
});
