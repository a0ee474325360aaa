/**
 * A real Prometheus that scrapes a running kube-relay, and a target with every metric of the table: the
 * queries of the Kubernetes mixin, the dashboard and the alert rules, and the scrape configurations.
 */
import { assert, assertEquals } from "@std/assert";
import { parse } from "@std/yaml";
import { readManifest } from "../support/docs/deploy_files.ts";
import { FACTS } from "../support/docs/grafana_dashboard.ts";
import { METRIC_ROWS } from "../support/metric_rows.ts";
import { isMissing, program } from "../support/requirement.ts";
import { THIS_NODE } from "../support/builders/address_plan.ts";
import { writeKubeconfig } from "../support/builders/kubeconfig_file.ts";
import { runTool } from "../support/drivers/run_tool.ts";
import { PrometheusProcess } from "../support/drivers/prometheus_process.ts";
import { FakeApiServer } from "../support/fakes/fake_api_server.ts";
import { PolicyRelay } from "../support/stages/policy_relay.ts";
import { withFolder } from "../support/with_folder.ts";

const ROOT = new URL("../../", import.meta.url).pathname;
const MONITORING = `${ROOT}deploy/monitoring`;
const ignore = isMissing("tests/monitoring", [program("prometheus")]);

/**
 * What the dashboard and the alerts of the Kubernetes mixin ask of kube-proxy, transcribed as data: the
 * metric with the labels that it selects, and the labels by which it groups. All select the job.
 */
const MIXIN: readonly (readonly [selected: string, by: readonly string[]])[] = [
  ["up{}", []],
  ["kubeproxy_sync_proxy_rules_duration_seconds_count{}", ["instance"]],
  ["kubeproxy_sync_proxy_rules_duration_seconds_bucket{}", ["instance", "le"]],
  ["kubeproxy_network_programming_duration_seconds_count{}", ["instance"]],
  ["kubeproxy_network_programming_duration_seconds_bucket{}", ["instance", "le"]],
  ['rest_client_requests_total{code=~"2.."}', ["instance"]],
  ['rest_client_request_duration_seconds_bucket{verb="GET"}', ["verb", "le"]],
  ["process_resident_memory_bytes{}", ["instance"]],
  ["process_cpu_seconds_total{}", ["instance"]],
];

/** Conditions of its alerts that concern kube-proxy; none may have a result. */
const MIXIN_ALERTS: Readonly<Record<string, string>> = {
  KubeProxyDown: 'absent(up{job="kube-proxy"} == 1)',
  KubeProxyInstanceUnreachable: 'up{job="kube-proxy"} == 0',
  TargetDown: "count by (job) (up == 0) / count by (job) (up) > 0.1",
  // The release of the cluster and any other one.
  KubeVersionMismatch: 'kubernetes_build_info{job="kube-proxy"}',
  KubeClientErrors: 'sum by (instance) (rate(rest_client_requests_total{code=~"5.."}[5m]))' +
    " / sum by (instance) (rate(rest_client_requests_total[5m])) > 0.01",
};

/** One series of each metric of the table, in Prometheus' text. */
function everyMetric(): string {
  return METRIC_ROWS.map(({ name, type, labels, buckets }) => {
    const given = Object.entries(labels).map(([label, [value]]) => `${label}="${value}"`);
    const line = (name: string, more: readonly string[] = []) =>
      `${name}{${[...given, ...more].join(",")}} 1`;
    const lines = buckets === undefined ? [line(name)] : [
      ...[...buckets, "+Inf"].map((bound) => line(`${name}_bucket`, [`le="${bound}"`])),
      line(`${name}_sum`),
      line(`${name}_count`),
    ];
    return [`# TYPE ${name} ${type}`, ...lines, ""].join("\n");
  }).join("");
}

/** Scrapes a running kube-relay with an API server as job kube-proxy, and the table as another job. */
async function withPrometheus(
  rules: readonly string[],
  test: (prometheus: PrometheusProcess, relay: string) => Promise<void>,
): Promise<void> {
  await using api = await FakeApiServer.start();
  // Watches are not measured, as in kube-proxy; lists are.
  api.streamingLists = "invalid";
  api.store.create({ apiVersion: "v1", kind: "Node", metadata: { name: THIS_NODE } });
  await withFolder(async (folder) => {
    const kubeconfig = `${folder}/kubeconfig`;
    const content = { server: api.url, ca: api.ca, user: { token: api.rotateToken() } };
    await writeKubeconfig(kubeconfig, content);
    await using relay = await PolicyRelay.start({
      ...{ args: [`--kubeconfig=${kubeconfig}`], families: ["IPv4", "IPv6"], isRelaying: true },
    });
    await using table = Deno.serve(
      { port: 0, hostname: "127.0.0.1", onListen: () => {} },
      () => new Response(everyMetric()),
    );
    const target = `127.0.0.1:${relay.metricsPort}`;
    const job = (name: string, target: string) => ({
      ...{ "job_name": name, "static_configs": [{ targets: [target] }] },
    });
    await using prometheus = await PrometheusProcess.start({
      global: { "scrape_interval": "200ms", "scrape_timeout": "200ms" },
      "rule_files": rules,
      "scrape_configs": [job("kube-proxy", target), job("table", `127.0.0.1:${table.addr.port}`)],
    });
    await prometheus.until("both targets were scraped three times", async () => {
      const counts = await prometheus.query("count_over_time((up == 1)[5m:200ms]) >= 3");
      return counts.length === 2;
    });
    await test(prometheus, target);
  });
}

interface Panel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly gridPos: Readonly<Record<"x" | "y" | "w" | "h", number>>;
  readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[];
  readonly panels?: readonly Panel[];
}

async function readDashboard(): Promise<readonly Panel[]> {
  const { panels } = JSON.parse(await Deno.readTextFile(`${MONITORING}/dashboard.json`));
  return (panels as readonly Panel[]).flatMap((panel) => [panel, ...panel.panels ?? []]);
}

Deno.test({
  name:
    "a running kube-relay answers the mixin, its alerts do not fire, and each query of ours has data",
  ignore,
  fn: () =>
    withPrometheus([`${MONITORING}/alerts.yaml`], async (prometheus, relay) => {
      for (const [selected, by] of MIXIN) {
        const own = selected.replace("{", `{job="kube-proxy",instance="${relay}",`);
        await prometheus.until(`data of ${selected}`, async () => {
          const series = await prometheus.query(`count by (${by.join(", ")}) (${own})`);
          const isGrouped = series.every(({ metric }) => by.every((label) => label in metric));
          return series.length > 0 && isGrouped;
        });
      }
      for (const [alert, condition] of Object.entries(MIXIN_ALERTS)) {
        assertEquals(await prometheus.query(condition), [], alert);
      }
      for (const { title, targets = [] } of await readDashboard()) {
        for (const { expr, legendFormat } of targets) {
          const query = expr.replaceAll("$__rate_interval", "5m").replaceAll("$job", ".+")
            .replaceAll("$instance", ".+");
          const series = await prometheus.query(query.replace(/ > 0$/, ""));
          assert(series.length > 0, `${title} has no data: ${query}`);
          for (const [, label] of legendFormat.matchAll(/{{(\w+)}}/g)) {
            assert(series.every(({ metric }) => label! in metric), `${title} has no ${label}`);
          }
        }
      }
      const { groups } = await prometheus.get("rules") as {
        readonly groups: readonly { readonly rules: readonly { readonly health: string }[] }[];
      };
      assertEquals(groups.map(({ rules }) => rules.length), [14]);
    }),
});

Deno.test("the dashboard has every metric of the table, and panels that do not overlap", async () => {
  const panels = await readDashboard();
  const queries = panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr)).join("\n");
  for (const { name } of METRIC_ROWS.filter(({ name }) => !FACTS.includes(name))) {
    assert(new RegExp(`\\b${name}(_bucket)?\\{`).test(queries), `no panel of ${name}`);
  }
  for (const [name] of queries.matchAll(/\b(kube|process|rest)\w*_\w+(?=\{)/g)) {
    const metric = name.replace(/_bucket$/, "");
    assert(METRIC_ROWS.some((row) => row.name === metric), `${name} is no metric`);
  }
  assertEquals(new Set(panels.map(({ id }) => id)).size, panels.length, "ids");
  const rows = panels.filter(({ type }) => type === "row");
  for (
    const shown of [
      panels.filter((panel) => !rows.some((row) => row.panels?.includes(panel))),
      ...rows.map(({ panels = [] }) => panels),
    ]
  ) {
    const cells = shown.flatMap(({ gridPos: { x, y, w, h } }) =>
      Array.from({ length: w * h }, (_, cell) => `${x + cell % w} ${y + Math.floor(cell / w)}`)
    );
    assertEquals(new Set(cells).size, cells.length, "panels overlap");
    assert(shown.every(({ gridPos: { x, w } }) => x + w <= 24));
  }
});

Deno.test("the dashboard's default shows the jobs of kube-relay, and no others", async () => {
  const { templating } = JSON.parse(await Deno.readTextFile(`${MONITORING}/dashboard.json`));
  const variables = templating.list as readonly Readonly<Record<string, unknown>>[];
  const job = variables.find(({ name }) => name === "job")!;
  assertEquals([job["definition"], job["includeAll"], job["allValue"]], [
    "label_values(kube_relay_build_info, job)",
    true,
    undefined,
  ]);
});

Deno.test({
  name: "Debian's Prometheus accepts the configuration for hosts",
  ignore: isMissing("tests/monitoring", [program("promtool")]),
  fn: async () => {
    await runTool("promtool", ["check", "config", `${MONITORING}/prometheus.yml`]);
  },
});

interface Relabeling {
  readonly [field: string]: unknown;
}

Deno.test({
  name: "the scrape configurations find the metrics port of a node, as job kube-proxy",
  ignore,
  async fn() {
    const jobOf = async (file: string) => {
      const { scrape_configs: [job] } = parse(
        await Deno.readTextFile(`${MONITORING}/${file}`),
      ) as { readonly scrape_configs: readonly Readonly<Record<string, unknown>>[] };
      return job;
    };
    const nodes = await jobOf("prometheus-cluster.yml");
    const hosts = await jobOf("prometheus.yml");
    const relabelings = nodes!["relabel_configs"] as readonly Relabeling[];
    // Debian's Prometheus is built without the discovery of Kubernetes: its results stand here.
    const { kubernetes_sd_configs: discovery, ...rest } = nodes!;
    assertEquals(discovery, [{ role: "node" }]);
    const found = {
      targets: ["192.0.2.7:10250", "[2001:db8::7]:10250"],
      labels: { "__meta_kubernetes_node_name": "node-a" },
    };
    await using prometheus = await PrometheusProcess.start({
      "scrape_configs": [{ ...rest, "static_configs": [found] }, hosts],
    });
    let targets: readonly string[] = [];
    await prometheus.until("it has its targets", async () => {
      const { activeTargets } = await prometheus.get("targets") as {
        readonly activeTargets: readonly {
          readonly scrapeUrl: string;
          readonly labels: Readonly<Record<string, string>>;
        }[];
      };
      targets = activeTargets.map(({ scrapeUrl, labels }) =>
        `${scrapeUrl} ${labels["job"]} ${labels["node"] ?? ""}`
      );
      return targets.length >= 4;
    });
    assertEquals(targets.toSorted(), [
      "http://192.0.2.7:10249/metrics kube-proxy node-a",
      "http://[2001:db8::7]:10249/metrics kube-proxy node-a",
      "http://edge-1.example:10249/metrics kube-proxy ",
      "http://edge-2.example:10249/metrics kube-proxy ",
    ]);
    const camelCase = (name: string) =>
      name.replaceAll(/_(\w)/g, (_, letter) => letter.toUpperCase());
    const [scrapeConfig] = await readManifest("monitoring/scrape-config.yaml");
    const { spec } = scrapeConfig as unknown as {
      readonly spec: { readonly kubernetesSDConfigs: unknown; readonly relabelings: unknown };
    };
    assertEquals(spec.kubernetesSDConfigs, [{ role: "Node" }]);
    assertEquals(
      spec.relabelings,
      relabelings.map((each) =>
        Object.fromEntries(Object.entries(each).map(([name, value]) => [camelCase(name), value]))
      ),
      "the operator's form has the same",
    );
  },
});
