/**
 * `deploy/monitoring/dashboard.json`: a dashboard for Grafana with rows for the cluster, and for each
 * node every metric of the table.
 */
import type { Metric } from "../../../lib/metrics/metric_table.ts";
import { METRIC_ROWS } from "../metric_rows.ts";

/** One query, and the legend of its series. */
interface Query {
  readonly expr: string;
  readonly legendFormat: string;
}

interface Panel {
  readonly title: string;
  readonly description?: string;
  readonly type: "stat" | "timeseries";
  readonly unit: string;
  readonly queries: readonly Query[];
  /** Of 24 columns. */
  readonly width: number;
}

/** The selected targets, and of a node. */
const CLUSTER = 'job=~"$job"';
const NODE = `${CLUSTER},instance=~"$instance"`;

/**
 * What an administrator looks at first: the title, the kind, the unit, the legend and the query, in which `{}`
 * selects the cluster. Each line of a graph is a node where it matters which.
 */
const CLUSTER_PANELS: readonly Panel[] = String.raw`
Nodes | stat | short | - | count(kube_relay_build_info{})
Down | stat | short | - | count(up{} == 0) or vector(0)
Nodes with problems | stat | short | - | count(sum by (instance) (kube_relay_problems{}) > 0) or vector(0)
In quarantine | stat | short | - | sum(kube_relay_controller_quarantined_items{})
Fullest connection tracking | stat | percentunit | - | max(kube_relay_conntrack_entries{} / (kube_relay_conntrack_limit{} > 0))
BGP sessions down | stat | short | - | count(kube_relay_routing_bgp_session_up{} == 0) or vector(0)
Problems | timeseries | short | {{kind}} | sum by (kind) (kube_relay_problems{})
Versions | timeseries | short | {{version}} {{mode}} | count by (version, mode) (kube_relay_build_info{})
Sync duration, 99th percentile | timeseries | s | {{ip_family}} | histogram_quantile(0.99, sum by (le, ip_family) (rate(kubeproxy_sync_proxy_rules_duration_seconds_bucket{}[$__rate_interval])))
Time until a change of endpoints takes effect, 99th percentile | timeseries | s | {{ip_family}} | histogram_quantile(0.99, sum by (le, ip_family) (rate(kubeproxy_network_programming_duration_seconds_bucket{}[$__rate_interval])))
Failed syncs | timeseries | ops | {{instance}} {{controller}} | sum by (instance, controller) (rate(kube_relay_controller_sync_failures_total{}[$__rate_interval])) > 0
Changed by other programs | timeseries | ops | {{instance}} {{kind}} | sum by (instance, kind) (rate(kube_relay_drift_found_total{}[$__rate_interval])) > 0
Used addresses of pools | timeseries | percentunit | {{pool}} {{ip_family}} | max by (pool, ip_family) (kube_relay_routing_pool_used_addresses{} / kube_relay_routing_pool_addresses{})
Memory | timeseries | bytes | {{instance}} | topk(10, process_resident_memory_bytes{})
CPU | timeseries | short | {{instance}} | topk(10, rate(process_cpu_seconds_total{}[$__rate_interval]))
`.trim().split("\n").map((line) => {
  const [title = "", type, unit = "", legend = "", query = ""] = line.split(" | ");
  const expr = query.replaceAll("{}", `{${CLUSTER}}`);
  const queries = [{ expr, legendFormat: legend === "-" ? "" : legend }];
  const isStat = type === "stat";
  return { title, type: isStat ? "stat" : "timeseries", unit, queries, width: isStat ? 4 : 8 };
});

/** Without a panel for each node. */
export const FACTS: readonly string[] = ["kube_relay_build_info", "kubernetes_feature_enabled"];

/** The rows of metrics of a node: a metric is in the first one whose pattern it has. */
const NODE_ROWS: readonly (readonly [title: string, pattern: RegExp])[] = [
  ["Node: Services (--service-counters)", /^kube_relay_service_(?!health_)/],
  ["Node: userspace mode", /^kube_relay_userspace_/],
  ["Node: NetworkPolicies", /^kube_relay_network_policy|^kube_relay_network_policies$/],
  ["Node: addresses and routes", /^kube_relay_routing_/],
  ["Node: API server", /^rest_client_|^kube_relay_(api|watch|relists)_/],
  ["Node: connection tracking", /_conntrack_/],
  ["Node: syncs", /^kubeproxy_(sync|network)_|_sync|drift|quarantine|problems|planned/],
  ["Node: process", /./],
];

const UNITS: readonly (readonly [ending: RegExp, unit: string])[] = [
  [/_seconds$/, "s"],
  [/_bytes$/, "bytes"],
];

/** Rates of counters, values of gauges, high percentiles of histograms. */
function metricPanel({ name, type, help, labels }: Metric): Panel {
  // A label with one value says nothing.
  const names = Object.keys(labels).filter((label) =>
    labels[label]!.length > 1 || labels[label]![0]!.startsWith("(")
  );
  const legendFormat = ["instance", ...names].map((label) => `{{${label}}}`).join(" ");
  const isTime = name.endsWith("_timestamp_seconds") || name === "process_start_time_seconds";
  const figure = name.replace(/_total$/, "");
  const unit = UNITS.find(([ending]) => ending.test(figure))?.[1] ?? "short";
  const by = ["instance", ...names].join(", ");
  const [expr, shown] = type === "counter"
    ? [
      `rate(${name}{${NODE}}[$__rate_interval])`,
      unit === "bytes" ? "Bps" : unit === "s" ? "short" : "ops",
    ]
    : type === "gauge"
    ? [isTime ? `time() - ${name}{${NODE}}` : `${name}{${NODE}}`, unit]
    : [
      `histogram_quantile(0.99, sum by (le, ${by}) (rate(${name}_bucket{${NODE}}[$__rate_interval])))`,
      unit,
    ];
  return {
    ...{ title: name, description: help, type: "timeseries", unit: shown },
    ...{ queries: [{ expr, legendFormat }], width: 8 },
  };
}

/** Panels from left to right, each line below the one before; returns the first free line. */
function placed(panels: readonly Panel[], y: number, firstId: number) {
  let [x, height] = [0, 0];
  const objects = panels.map(({ title, description, type, unit, queries, width }, index) => {
    const h = type === "stat" ? 4 : 8;
    if (x + width > 24) [x, y, height] = [0, y + height, 0];
    const gridPos = { h, w: width, x, y };
    [x, height] = [x + width, Math.max(height, h)];
    return {
      id: firstId + index,
      ...{ title, ...(description && { description }), type, gridPos },
      datasource: { type: "prometheus", uid: "$datasource" },
      fieldConfig: { defaults: { unit }, overrides: [] },
      options: type === "stat"
        ? { reduceOptions: { calcs: ["lastNotNull"] }, colorMode: "value" }
        : { legend: { displayMode: "list", placement: "bottom" }, tooltip: { mode: "multi" } },
      targets: queries.map((query, at) => ({ refId: String.fromCharCode(65 + at), ...query })),
    };
  });
  return { objects, end: y + height };
}

/** The dashboard, as the file has it. */
export function grafanaDashboard(): string {
  const groups = Map.groupBy(
    METRIC_ROWS.filter(({ name }) => !FACTS.includes(name)),
    ({ name }) => NODE_ROWS.find(([, pattern]) => pattern.test(name))![0],
  );
  const cluster = placed(CLUSTER_PANELS, 1, 2);
  const panels: object[] = [
    {
      id: 1,
      type: "row",
      title: "Cluster",
      collapsed: false,
      gridPos: { h: 1, w: 24, x: 0, y: 0 },
      panels: [],
    },
    ...cluster.objects,
  ];
  let [y, id] = [cluster.end, 2 + cluster.objects.length];
  for (const [title] of NODE_ROWS.toReversed()) {
    const members = (groups.get(title) ?? []).map(metricPanel);
    const { objects } = placed(members, y + 1, id + 1);
    const gridPos = { h: 1, w: 24, x: 0, y };
    panels.push({ id, type: "row", title, collapsed: true, gridPos, panels: objects });
    [y, id] = [y + 1, id + 1 + objects.length];
  }
  const variable = (name: string, query: string, more = {}) => ({
    ...{ name, label: name, type: "query", datasource: { type: "prometheus", uid: "$datasource" } },
    ...{ definition: query, query: { query, refId: name }, refresh: 2, sort: 1 },
    ...{ multi: true, includeAll: true, ...more },
    current: { text: ["All"], value: ["$__all"] },
  });
  const dashboard = {
    ...{ uid: "kube-relay", title: "kube-relay", tags: ["kube-relay", "networking"] },
    ...{ schemaVersion: 39, editable: true, graphTooltip: 1, refresh: "30s", timezone: "browser" },
    time: { from: "now-3h", to: "now" },
    templating: {
      list: [
        { name: "datasource", label: "data source", type: "datasource", query: "prometheus" },
        // Without `allValue`, all of them are those of kube-relay, and not every job of Prometheus.
        variable("job", "label_values(kube_relay_build_info, job)"),
        variable("instance", `label_values(kube_relay_build_info{${CLUSTER}}, instance)`, {
          // The names of thousands of nodes would be too long for a query.
          allValue: ".+",
        }),
      ],
    },
    panels,
  };
  // A panel is a line, so that a difference shows which one has changed.
  const { panels: all, ...head } = dashboard;
  const lines = all.map((panel) => `  ${JSON.stringify(panel)}`).join(",\n");
  return `${JSON.stringify(head).slice(0, -1)},"panels":[\n${lines}\n]}\n`;
}
