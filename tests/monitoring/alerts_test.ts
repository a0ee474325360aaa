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

/** The alert, what happens, the series, and when the alert is looked at; whether it fires. */
interface Case {
  readonly alert: string;
  readonly what: string;
  readonly at: string;
  readonly fires: boolean;
  /** Name and labels, and promtool's values at intervals of a minute. */
  readonly series: readonly (readonly [series: string, values: string])[];
}

const AT = 'job="kube-proxy",instance="a:10249"';
const FAMILY = `${AT},ip_family="IPv4"`;
const LOOP = `${FAMILY},controller="service"`;

const CASES: readonly Case[] = `
Down | kube-relay stopped | 20m | fires | up{AT} 1x10 0x30 | kube_relay_build_info{AT} 1x10 stale
Down | kube-relay stopped yesterday | 30h | fires | up{AT} 1x10 0x1800 | kube_relay_build_info{AT} 1x10 stale
Down | it answers | 20m | quiet | kube_relay_build_info{AT,mode="nftables"} 1x120 | up{AT} 1x30
Down | a restart | 20m | quiet | kube_relay_build_info{AT,mode="nftables"} 1x120 | up{AT} 1x15 0 0 0 1x30
Down | another program is down | 20m | quiet | kube_relay_build_info{AT,mode="nftables"} 1x120 | up{job="x",instance="b"} 0x30
Absent | no kube-relay | 20m | fires | up{AT} 1x30
Absent | one of two | 20m | quiet | kube_relay_build_info{AT,mode="nftables"} 1x120
NotServing | it waits for the API server | 15m | fires | kube_relay_problems{AT,kind="state"} 1x30
NotServing | it starts | 15m | quiet | kube_relay_problems{AT,kind="state"} 1x5 0x30
NotServing | something else is wrong | 15m | quiet | kube_relay_problems{AT,kind="source"} 1x30
SyncFailing | every sync fails | 25m | fires | kube_relay_problems{AT,kind="sync"} 1x30 | kube_relay_controller_sync_failures_total{LOOP} 1+1x30
SyncFailing | one sync failed | 25m | quiet | kube_relay_problems{AT,kind="sync"} 1 0x30 | kube_relay_controller_sync_failures_total{LOOP} 0 1x30
SyncOld | a change waits | 25m | fires | kube_relay_build_info{AT,mode="nftables"} 1x120 | kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{FAMILY} 660x40 | kubeproxy_sync_proxy_rules_last_timestamp_seconds{FAMILY} 600x40
SyncOld | no change | 25m | quiet | kube_relay_build_info{AT,mode="nftables"} 1x120 | kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{FAMILY} 60x40 | kubeproxy_sync_proxy_rules_last_timestamp_seconds{FAMILY} 61x40
SyncOld | many changes | 25m | quiet | kube_relay_build_info{AT,mode="nftables"} 1x120 | kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{FAMILY} 5+60x40 | kubeproxy_sync_proxy_rules_last_timestamp_seconds{FAMILY} 4+60x40
SyncOld | a kube-proxy's own | 25m | quiet | kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{FAMILY} 660x40 | kubeproxy_sync_proxy_rules_last_timestamp_seconds{FAMILY} 600x40
Quarantine | a Service is refused | 20m | fires | kube_relay_controller_quarantined_items{LOOP} 1x30
Quarantine | it is soon accepted | 20m | quiet | kube_relay_controller_quarantined_items{LOOP} 1x10 0x30
DriftRepeated | a program flushes a table every minute | 65m | fires | kube_relay_drift_found_total{LOOP,kind="rule"} 0+1x120
DriftRepeated | a table was flushed once | 65m | quiet | kube_relay_drift_found_total{LOOP,kind="rule"} 0x20 5x100
DriftRepeated | a table is flushed at first | 62m | quiet | kube_relay_drift_found_total{LOOP,kind="rule"} _x40 1+1x100
ConntrackNearlyFull | 81 % | 10m | fires | kube_relay_conntrack_entries{AT} 81x30 | kube_relay_conntrack_limit{AT} 100x30
ConntrackNearlyFull | 79 % | 10m | quiet | kube_relay_conntrack_entries{AT} 79x30 | kube_relay_conntrack_limit{AT} 100x30
ConntrackNearlyFull | without a limit | 10m | quiet | kube_relay_conntrack_entries{AT} 79x30 | kube_relay_conntrack_limit{AT} 0x30
NoAllocator | no node holds the Lease | 10m | fires | kube_relay_routing_assigns{AT} 0x30 | kube_relay_routing_assigns{job="kube-proxy",instance="b:10249"} 0x30
NoAllocator | one node holds it | 10m | quiet | kube_relay_routing_assigns{AT} 0x30 | kube_relay_routing_assigns{job="kube-proxy",instance="b:10249"} 1x30
ServicesWithoutAddress | a pool is empty | 15m | fires | kube_relay_routing_refused_services{AT} 2x30
ServicesWithoutAddress | all have theirs | 15m | quiet | kube_relay_routing_refused_services{AT} 0x30
BgpSessionDown | the peer is gone | 10m | fires | kube_relay_routing_bgp_session_up{AT,peer="tor"} 1 0x30
BgpSessionDown | it is established | 10m | quiet | kube_relay_routing_bgp_session_up{AT,peer="tor"} 0 1x30
EndpointsUnhealthy | one is ejected | 15m | fires | kube_relay_userspace_endpoints{FAMILY,state="ejected"} 1x30 | kube_relay_userspace_endpoints{FAMILY,state="healthy"} 2x30
EndpointsUnhealthy | all are healthy | 15m | quiet | kube_relay_userspace_endpoints{FAMILY,state="unhealthy"} 0x30 | kube_relay_userspace_endpoints{FAMILY,state="healthy"} 2x30
PolicyProblem | a policy has an unknown operator | 10m | fires | kube_relay_network_policy_problems{AT,kind="policy"} 1x30
PolicyProblem | all can be used | 10m | quiet | kube_relay_network_policy_problems{AT,kind="policy"} 0x30
SourceProblem | a manifest is broken | 20m | fires | kube_relay_problems{AT,kind="source"} 1x30
SourceProblem | it is corrected | 20m | quiet | kube_relay_problems{AT,kind="source"} 1x10 0x30
`.trim().split("\n").map((line) => {
  const [alert = "", what = "", at = "", end, ...series] = line.split(" | ");
  const named = series.map((each) =>
    each.replace("{AT", `{${AT}`).replace("{FAMILY", `{${FAMILY}`).replace("{LOOP", `{${LOOP}`)
  );
  const parts = named.map((each) => /^(.*\}) (.*)$/.exec(each)!.slice(1) as [string, string]);
  return { alert, what, at, fires: end === "fires", series: parts };
});

/** Runs a case; resolves to promtool's output if the case does not hold. */
async function judge({ alert, what, series, at, fires }: Case): Promise<string | undefined> {
  const file = await Deno.makeTempFile({ suffix: ".yaml" });
  const input = series.map(([series, values]) => ({ series, values }));
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
  const { alert, what, fires } = each;
  test(`KubeRelay${alert} ${fires ? "fires" : "does not fire"}: ${what}`, async () =>
    assertEquals(await judge(each), undefined));
}

test("a case of the alerts can fail", async () => {
  assertStringIncludes(await judge({ ...CASES[0]!, fires: !CASES[0]!.fires }) ?? "", "FAILED");
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
    const cases = CASES.filter((each) => `KubeRelay${each.alert}` === alert);
    assertEquals([...new Set(cases.map(({ fires }) => fires))].sort(), [false, true], alert);
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
