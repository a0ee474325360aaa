/**
 * The state of kube-relay on every node of a cluster: asks the metrics port of each node by way of the
 * API server, and the health port where that does not answer.
 *
 * @module
 */
import { ApiError } from "../../kube/api_error.ts";
import type { KubeClient } from "../../kube/client.ts";
import { LinkedAbort, Watchdog } from "../../kube/linked_abort.ts";
import { countText } from "../../log/count_text.ts";
import { messageOf } from "../../log/message_of.ts";
import { PROBLEM_KINDS, type ProblemKind } from "../../metrics/metric_table.ts";
import type { Clock, Timer } from "../../os/clock.ts";
import { SERVER_NAME } from "../../os/http_connection.ts";
import type { Report, Row, Tone } from "../report.ts";

/** The state of a node. `healthy` and `unhealthy`: only its health port could be read. */
export type ClusterNodeState =
  | "serving"
  | "not serving"
  | "healthy"
  | "unhealthy"
  | "other program"
  | "no answer";

/** What could be read of kube-relay on one node. */
export interface ClusterNode {
  readonly node: string;
  readonly state: ClusterNodeState;
  readonly version?: string;
  readonly mode?: string;
  readonly servicePorts?: number;
  /** RFC 3339; of the IP family that was synced longest ago. */
  readonly lastSync?: string;
  /** The number of problems of each kind; kinds without problems are left out. */
  readonly problems?: Readonly<Partial<Record<ProblemKind, number>>>;
  /** Why the metrics could not be read. */
  readonly reason?: string;
}

type NodeReader = Pick<KubeClient, "listPage" | "readLines">;

/** Nodes that are asked at the same time. */
const AT_ONCE = 50;
/** Nodes in one page of the list; one may have 100 KB, of the names of its images. */
const PAGE = 100;
/** A node with the counters of 8,000 Service ports has 5 MB. */
const MOST_BYTES = 8 * 1024 * 1024;
/** An answer of the health port has 80 bytes for each controller and IP family. */
const MOST_HEALTH_BYTES = 8 * 1024;
/** Longest time for both ports of a node. */
const NODE_MS = 5000;
const LATE = `no answer within ${NODE_MS / 1000} s`;
const MOST_TEXT = 200;
/** Time between two reports of progress; thousands of silent nodes take minutes. */
const PROGRESS_MS = 12_000;

/**
 * Asks every node that may run kube-relay; resolves to their states, sorted by name. Rejects if the API
 * server does not answer, refuses the list of nodes, or permits no node to be asked.
 */
export async function askCluster(
  { clock, client }: { readonly clock: Clock; readonly client: NodeReader },
  { metricsPort, healthPort, signal, onProgress = () => {} }: {
    readonly metricsPort: number;
    readonly healthPort: number;
    readonly signal: AbortSignal;
    /** Called now and then while it lasts. */
    readonly onProgress?: (asked: number, all: number) => void;
  },
): Promise<readonly ClusterNode[]> {
  const names: string[] = [];
  let token: string | undefined;
  do {
    const page = await client.listPage({
      path: "/api/v1/nodes",
      labelSelector: "kubernetes.io/os!=windows",
      ...{ limit: PAGE, continue: token, signal },
    }, (raw) => names.push(nameOf(raw)));
    token = page.continue;
  } while (token);
  const asked: { readonly node: ClusterNode; readonly error?: unknown }[] = [];
  const waiting = names.values();
  const askNext = async () => {
    for (const name of waiting) {
      const place = `/api/v1/nodes/http:${encodeURIComponent(name)}`;
      using call = new LinkedAbort(signal);
      using _limit = new Watchdog(clock, NODE_MS, () => call.abort(new Error(LATE)));
      try {
        const path = `${place}:${metricsPort}/proxy/metrics`;
        asked.push({ node: await readMetrics(client, name, path, call.signal) });
      } catch (error) {
        const reason = reasonOf(error);
        try {
          if (call.signal.aborted || isForbidden(error)) throw error;
          const path = `${place}:${healthPort}/proxy/healthz`;
          const state = await readHealth(client, path, call.signal);
          const isOther = state === "other program";
          asked.push({
            node: { node: name, state, reason: isOther ? otherProgram("health") : reason },
          });
        } catch {
          signal.throwIfAborted();
          asked.push({ node: { node: name, state: "no answer", reason }, error });
        }
      }
    }
  };
  let timer: Timer | undefined;
  const reportLater = () => {
    timer = clock.setTimer(PROGRESS_MS, () => {
      onProgress(asked.length, names.length);
      reportLater();
    });
  };
  reportLater();
  try {
    await Promise.all(Array.from({ length: AT_ONCE }, askNext));
  } finally {
    timer?.cancel();
  }
  if (asked.length > 0 && asked.every(({ error }) => isForbidden(error))) {
    throw new Error(
      `Cannot ask the nodes: ${messageOf(asked[0]!.error)}. This user needs the right to get ` +
        "nodes/proxy; docs/monitoring.md has the role",
    );
  }
  return asked.map(({ node }) => node).sort((a, b) => a.node < b.node ? -1 : 1);
}

function isForbidden(error: unknown): boolean {
  return error instanceof ApiError && error.isForbidden();
}

function nameOf(raw: unknown): string {
  const { metadata } = Object(raw) as { readonly metadata?: { readonly name?: unknown } | null };
  return String(metadata?.name);
}

function otherProgram(port: string): string {
  return `the ${port} port is that of another program, such as kube-proxy`;
}

/** The answer of the API server, or of the node, without the request that failed. */
function reasonOf(error: unknown): string {
  return messageOf(error).replace(/^Cannot read \/\S+: /, "").slice(0, MOST_TEXT);
}

/** One line of Prometheus' text with labels. */
const SAMPLE = /^(kube(?:proxy|_relay)_\w+)\{(.*)\} (\S+)$/;
/** The latest date of ECMAScript, in seconds. No number that is read of a kube-relay is larger. */
const MOST_VALUE = 8.64e12;
/** Ends at the first one of another form. */
const LABEL = /(\w+)="([^"\\]*)",?/gy;

/** Rejects if what answers has no metrics. */
async function readMetrics(
  client: NodeReader,
  node: string,
  path: string,
  signal: AbortSignal,
): Promise<ClusterNode> {
  const problems: Partial<Record<ProblemKind, number>> = {};
  let build: ReadonlyMap<string, string> | undefined;
  let [servicePorts, syncedAt, isMetrics] = [0, Infinity, false];
  await client.readLines({ path, mostBytes: MOST_BYTES, signal }, (line) => {
    isMetrics ||= line.startsWith("# TYPE ");
    const [, name, labelText = "", text] = SAMPLE.exec(line) ?? [];
    const value = Number(text);
    // Neither for NaN.
    if (name === undefined || !(Math.abs(value) <= MOST_VALUE)) return;
    const labels = () =>
      new Map([...labelText.matchAll(LABEL)].map(([, label, value]) => [label!, value!]));
    if (name === "kube_relay_build_info") build = labels();
    else if (name === "kube_relay_planned_service_ports") servicePorts += value;
    else if (name === "kubeproxy_sync_proxy_rules_last_timestamp_seconds") {
      syncedAt = Math.min(syncedAt, value * 1000);
    } else if (name === "kube_relay_problems") {
      const kind = PROBLEM_KINDS.find((each) => each === labels().get("kind"));
      if (kind && value > 0) problems[kind] = value;
    }
  });
  if (!isMetrics) throw new Error("the answer of the metrics port is no text of Prometheus");
  if (build === undefined) {
    return { node, state: "other program", reason: otherProgram("metrics") };
  }
  const textOf = (label: string) => (build!.get(label) ?? "").slice(0, MOST_TEXT);
  return {
    node,
    state: problems.state === undefined ? "serving" : "not serving",
    ...{ version: textOf("version"), mode: textOf("mode"), servicePorts },
    ...(syncedAt < Infinity && { lastSync: new Date(syncedAt).toISOString() }),
    problems,
  };
}

/** The health port has the state in the status of its answer, which the API server passes on. */
async function readHealth(
  client: NodeReader,
  path: string,
  signal: AbortSignal,
): Promise<"healthy" | "unhealthy" | "other program"> {
  let text = "";
  const options = { path, mostBytes: MOST_HEALTH_BYTES, accepts: 503, signal };
  const status = await client.readLines(options, (line) => text += line);
  if (text.includes(`"program":"${SERVER_NAME}"`)) return status === 503 ? "unhealthy" : "healthy";
  if (text.includes('"lastUpdated"')) return "other program";
  // The API server's own 503, or another server.
  throw new Error("neither the metrics port nor the health port is that of kube-relay");
}

const TONES: Readonly<Record<ClusterNodeState, Tone | undefined>> = {
  serving: undefined,
  "not serving": "warning",
  healthy: undefined,
  unhealthy: "bad",
  "other program": "warning",
  "no answer": "bad",
};

/** Whether an administrator should look at a node. A node of which only the health is known is none. */
export function isNodeProblem({ state, problems = {} }: ClusterNode): boolean {
  return TONES[state] !== undefined || Object.keys(problems).length > 0;
}

/** From here on, nodes without problems are only counted. */
const MANY_NODES = 30;

/** All nodes in one table: those with problems first. */
export function clusterReport(
  nodes: readonly ClusterNode[],
  { time, show }: {
    /** Formats a moment in milliseconds since 1970, e.g. as `2s ago`. */
    readonly time: (at: number) => string;
    /** As in {@linkcode statusAnswer}. */
    readonly show: "all" | "few" | "problems";
  },
): Report {
  const [bad, fine] = [true, false].map((wanted) =>
    nodes.filter((node) => isNodeProblem(node) === wanted)
  );
  const showsAll = show === "all" || show === "few" && nodes.length < MANY_NODES;
  const shown = showsAll ? [...bad!, ...fine!] : show === "few" ? bad!.slice(0, MANY_NODES) : bad!;
  const hidden = nodes.length - shown.length;
  const states = Map.groupBy(nodes, ({ state }) => state);
  const builds = Map.groupBy(
    nodes.filter(({ version }) => version !== undefined),
    ({ version, mode }) => `v${version} ${mode}`.trimEnd(),
  );
  const counts = (groups: ReadonlyMap<string, readonly unknown[]>) =>
    [...groups].map(([name, { length }]) => `${length} ${name}`).sort().join(", ");
  return {
    title: `kube-relay on ${countText(nodes.length, "node")}`,
    tone: bad!.length === 0 ? "good" : "warning",
    rows: [
      { cells: ["State", counts(states) || "the cluster has no node"] },
      { cells: ["Problems", bad!.length === 0 ? "none" : `on ${countText(bad!.length, "node")}`] },
      ...(builds.size === 0 ? [] : [{ cells: ["Versions", counts(builds)] }]),
      ...(hidden > 0 && show !== "problems"
        ? [{ cells: ["Not shown", `${countText(hidden, "node")}: --all lists them`] }]
        : []),
    ],
    parts: shown.length === 0 ? [] : [{
      title: "",
      columns: ["NODE", "STATE", "MODE", "PORTS", "LAST SYNC", "PROBLEMS"],
      rows: shown.map((node) => nodeRow(node, time)),
      parts: [],
    }],
  };
}

function nodeRow(
  { node, state, mode = "", servicePorts, lastSync, problems = {}, reason = "" }: ClusterNode,
  time: (at: number) => string,
): Row {
  const kinds = Object.entries(problems);
  const tone = TONES[state] ?? (kinds.length > 0 ? "warning" : undefined);
  return {
    cells: [
      ...[node, state, mode, `${servicePorts ?? ""}`],
      lastSync === undefined ? "" : time(Date.parse(lastSync)),
      kinds.map(([kind, count]) => `${count} ${kind}`).join(", ") || reason,
    ],
    ...(tone && { tone }),
  };
}
