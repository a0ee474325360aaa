import type { Dependencies } from "../../app/dependencies.ts";
import type { LoadedConfiguration } from "../../config/load.ts";
import { NODE } from "../../api/kinds/node.ts";
import { findMissingAccess, type NeededAccess } from "../../app/run/controller_source.ts";
import { nodeNameOf } from "../../app/run/start_up.ts";
import { ApiError } from "../../kube/api_error.ts";
import { openTransport } from "../../kube/api_transport.ts";
import { KubeClient } from "../../kube/client.ts";
import type { KubeAuth } from "../../kube/kube_auth.ts";
import { loadKubeAuth } from "../../kube/kubeconfig.ts";
import { slimObject } from "../../kube/slim.ts";
import { StringTable } from "../../kube/string_table.ts";
import type { LogFields, Logger } from "../../log/logger.ts";
import { messageOf } from "../../log/message_of.ts";
import { SILENT_LOGGER } from "../../log/silent_logger.ts";
import { findingOf, type HostFinding } from "../../proxy/host_checks.ts";

/** What an examination works with. */
export interface Edges {
  readonly dependencies: Dependencies;
  readonly configuration: LoadedConfiguration;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

/** A fact of the report with its findings. */
export interface Fact<T> {
  readonly fact: T;
  readonly findings: readonly HostFinding[];
  /** Annotations of the own Node, if known. */
  readonly nodeAnnotations?: Readonly<Record<string, string>> | undefined;
}

export interface DoctorApi {
  readonly state: "not configured" | "answers" | "unreachable" | "unusable";
  readonly detail: string;
}

export interface CollectedLine {
  readonly message: string;
  readonly fields: LogFields;
}

/** Collects errors, warnings and infos, and prints nothing. */
export function collectingLogger(lines: CollectedLine[], own: LogFields = {}): Logger {
  const keep = (message: string, fields: LogFields = {}) =>
    void lines.push({ message, fields: { ...own, ...fields } });
  return {
    ...{ error: keep, warn: keep, info: keep },
    verbose: () => {},
    enabled: () => false,
    with: (fields) => collectingLogger(lines, { ...own, ...fields }),
  };
}

/** An API server on the same network answers in milliseconds. */
const TIMEOUT_MS = 5000;

/** Reads the credentials, if any, and asks for one Service and for the own Node. */
export async function examineApi(edges: Edges): Promise<Fact<DoctorApi>> {
  const { dependencies, configuration: { proxy, relay: { manifests } }, signal } = edges;
  const lines: CollectedLine[] = [];
  let auth: KubeAuth | undefined;
  try {
    auth = await credentials(edges, proxy.clientConnection.kubeconfig, collectingLogger(lines));
  } catch (error) {
    const detail = messageOf(error);
    const findings = findingOf([detail], {
      id: "api-credentials-unusable",
      severity: "blocking",
      summary: "The API server does not accept the given credentials",
      cure: "give a kubeconfig that this user can read with --kubeconfig",
    });
    return { fact: { state: "unusable", detail }, findings };
  }
  if (auth === undefined) {
    const detail = manifests.length > 0
      ? `manifests are the source: ${manifests.join(", ")}`
      : "no --kubeconfig was given, and this is no pod";
    return { fact: { state: "not configured", detail }, findings: [] };
  }
  // E.g. a file that every user can read.
  const warnings = lines.map(({ message, fields: { cure, ...evidence } }): HostFinding => ({
    id: "api-credentials",
    severity: "warning",
    summary: message,
    evidence: Object.entries(evidence).map(([name, value]) => `${name}: ${value}`),
    ...(typeof cure === "string" && { cure }),
  }));
  const { server, method } = auth.describe();
  try {
    return await withClient(edges, auth, async (client, signal) => {
      await client.currentVersion({ path: "/api/v1/services", signal });
      // A start does not need the Node either.
      const path = `/api/v1/nodes/${nodeNameOf(proxy, dependencies.process)}`;
      const node = await client.get(path, signal)
        .then((raw) => slimObject(NODE, raw, { strings: new StringTable(), onProblem: () => {} }))
        .catch(() => undefined);
      return {
        fact: { state: "answers", detail: `${server}, by ${method}` },
        findings: warnings,
        nodeAnnotations: node?.metadata.annotations,
      };
    });
  } catch (error) {
    signal.throwIfAborted();
    const detail = `${server}: ${messageOf(error)}`;
    // A start waits for an unreachable server, but not for one that refuses it.
    const isRefused = error instanceof ApiError;
    const findings = findingOf([detail], {
      id: isRefused ? "api-refuses" : "api-unreachable",
      severity: "warning",
      summary: isRefused
        ? "The API server does not let us list Services"
        : "The API server cannot be reached; a start would wait for it",
      cure: isRefused
        ? "give this identity the ClusterRole system:node-proxier, or another kubeconfig"
        : "see that the API server runs and that the URL of the kubeconfig is right",
    });
    return { fact: { state: "unreachable", detail }, findings: [...findings, ...warnings] };
  }
}

/** Asks the API server for the permissions that a controller needs. */
export async function examineAccess(
  edges: Edges,
  { needed, flag, given, id, summary }: {
    readonly needed: NeededAccess;
    /** The flag that names another kubeconfig than that of Services. */
    readonly flag: string;
    /** Its value; empty = not given. */
    readonly given: string;
    readonly id: string;
    /** The effect of a missing permission, as one sentence without a full stop. */
    readonly summary: string;
  },
): Promise<readonly HostFinding[]> {
  try {
    const { clientConnection } = edges.configuration.proxy;
    const auth = await credentials(edges, given || clientConnection.kubeconfig, SILENT_LOGGER);
    if (auth === undefined) return [];
    const missing = await withClient(
      edges,
      auth,
      (client, signal) => findMissingAccess(client, needed, signal),
    );
    if (missing === undefined) return [];
    const { method, file } = auth.describe();
    return findingOf([
      `no right to ${missing.missing.join(", ")}, by ${method}${file ? ` of ${file}` : ""}`,
      `missing rule: ${missing.clusterRole}`,
    ], { id, severity: "warning", summary, cure: missing.cure });
  } catch (error) {
    edges.signal.throwIfAborted();
    // Trouble with the connection of Services is a finding of its own.
    return findingOf(given === "" ? [] : [`${given}: ${messageOf(error)}`], {
      id: `${id}-unknown`,
      severity: "warning",
      summary: `The API server could not be asked with the kubeconfig of --${flag}`,
      cure: `see that --${flag} names a kubeconfig that this user can read`,
    });
  }
}

/** Returns `undefined` if nothing names an API server. Throws if the credentials cannot be used. */
async function credentials(
  { dependencies, configuration: { relay: { manifests, master } } }: Edges,
  kubeconfig: string,
  logger: Logger,
): Promise<KubeAuth | undefined> {
  const { clock, commands, process: { env } } = dependencies;
  const given = kubeconfig || master || env("KUBECONFIG") || env("KUBERNETES_SERVICE_HOST");
  if (manifests.length > 0 || !given) return undefined;
  return await loadKubeAuth({ clock, logger, commands }, {
    ...(kubeconfig !== "" && { kubeconfig }),
    ...(master !== undefined && { master }),
    env,
  });
}

/** Connects for a few questions. Throws their errors, and an error if no answer arrives in time. */
async function withClient<T>(
  { dependencies: { clock }, signal }: Edges,
  auth: KubeAuth,
  use: (client: KubeClient, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const timeout = new AbortController();
  const timer = clock.setTimer(TIMEOUT_MS, () => timeout.abort());
  await using transport = openTransport(clock, auth, { connectTimeoutMs: TIMEOUT_MS });
  try {
    const client = new KubeClient({ clock, auth, transport });
    return await use(client, AbortSignal.any([signal, timeout.signal]));
  } catch (error) {
    const isLate = timeout.signal.aborted && !signal.aborted;
    throw isLate ? new Error(`no answer within ${TIMEOUT_MS / 1000} s`) : error;
  } finally {
    timer.cancel();
  }
}
