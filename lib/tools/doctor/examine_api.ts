import { NODE } from "../../api/kinds/node.ts";
import type { LoadedConfiguration } from "../../config/load.ts";
import { ApiError } from "../../kube/api_error.ts";
import { openTransport } from "../../kube/api_transport.ts";
import { KubeClient } from "../../kube/client.ts";
import type { KubeAuth } from "../../kube/kube_auth.ts";
import { loadKubeAuth } from "../../kube/kubeconfig.ts";
import { slimObject } from "../../kube/slim.ts";
import { StringTable } from "../../kube/string_table.ts";
import { messageOf } from "../../log/message_of.ts";
import type { HostFinding } from "../../proxy/host_checks.ts";
import type { Dependencies } from "../../app/dependencies.ts";
import { type CollectedLine, CollectingLogger } from "./collecting_logger.ts";
import { nodeNameOf } from "../../app/run/start_up.ts";
import type { DoctorApi, Examined, KnownNode } from "./doctor_report.ts";

/** An API server on the same network answers in milliseconds. */
const TIMEOUT_MS = 5000;

interface ApiExamination {
  readonly configuration: Pick<LoadedConfiguration, "proxy" | "relay">;
  readonly signal: AbortSignal;
}

/** Reads the credentials, if any, and asks for one Service and for the own Node. */
export async function examineApi(
  dependencies: Pick<Dependencies, "clock" | "process" | "commands">,
  { configuration, signal }: ApiExamination,
): Promise<Examined<DoctorApi> & KnownNode> {
  const { proxy, relay: { manifests, master } } = configuration;
  const { kubeconfig } = proxy.clientConnection;
  const { clock, commands, process: { env } } = dependencies;
  if (manifests.length > 0) {
    return notConfigured(`manifests are the source: ${manifests.join(", ")}`);
  }
  const given = kubeconfig || master || env("KUBECONFIG") || env("KUBERNETES_SERVICE_HOST");
  if (!given) return notConfigured("no --kubeconfig was given, and this is no pod");
  const logger = new CollectingLogger();
  let auth: KubeAuth;
  try {
    auth = await loadKubeAuth({ clock, logger, commands }, {
      ...(kubeconfig !== "" && { kubeconfig }),
      ...(master !== undefined && { master }),
      env,
    });
  } catch (error) {
    return unusable(messageOf(error));
  }
  const nodeName = nodeNameOf(proxy, dependencies.process);
  const answer = await ask(dependencies, { auth, nodeName, signal });
  return { ...answer, findings: [...answer.findings, ...logger.lines.map(findingOfLine)] };
}

function notConfigured(detail: string): Examined<DoctorApi> {
  return { fact: { state: "not configured", detail }, findings: [] };
}

function unusable(detail: string): Examined<DoctorApi> {
  const finding: HostFinding = {
    id: "api-credentials-unusable",
    severity: "blocking",
    summary: "The API server does not accept the given credentials",
    evidence: [detail],
    cure: "give a kubeconfig that this user can read with --kubeconfig",
  };
  return { fact: { state: "unusable", detail }, findings: [finding] };
}

async function ask(
  dependencies: Pick<Dependencies, "clock">,
  { auth, nodeName, signal }: {
    readonly auth: KubeAuth;
    readonly nodeName: string;
    readonly signal: AbortSignal;
  },
): Promise<Examined<DoctorApi> & KnownNode> {
  const { server, method } = auth.describe();
  try {
    return await withApiClient(dependencies, { auth, signal }, async (client, either) => {
      await client.currentVersion({ path: "/api/v1/services", signal: either });
      const fact = { state: "answers", detail: `${server}, by ${method}` } as const;
      const nodeAnnotations = await annotationsOf(nodeName, client, either);
      return { fact, findings: [], nodeAnnotations };
    });
  } catch (error) {
    signal.throwIfAborted();
    return unreachable(`${server}: ${messageOf(error)}`, error);
  }
}

/** Connects for a few questions. Throws their errors, and an error if no answer arrives in time. */
export async function withApiClient<T>(
  { clock }: Pick<Dependencies, "clock">,
  { auth, signal }: { readonly auth: KubeAuth; readonly signal: AbortSignal },
  use: (client: KubeClient, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const timeout = new AbortController();
  const timer = clock.setTimer(TIMEOUT_MS, () => timeout.abort());
  const either = AbortSignal.any([signal, timeout.signal]);
  await using transport = openTransport(clock, auth, { connectTimeoutMs: TIMEOUT_MS });
  try {
    return await use(new KubeClient({ clock, auth, transport }), either);
  } catch (error) {
    const isLate = timeout.signal.aborted && !signal.aborted;
    throw isLate ? new Error(`no answer within ${TIMEOUT_MS / 1000} s`) : error;
  } finally {
    timer.cancel();
  }
}

/** Best effort: a start does not need the Node either. */
async function annotationsOf(
  nodeName: string,
  client: KubeClient,
  signal: AbortSignal,
): Promise<KnownNode["nodeAnnotations"]> {
  try {
    const raw = await client.get(`/api/v1/nodes/${nodeName}`, signal);
    const node = slimObject(NODE, raw, { strings: new StringTable(), onProblem: () => {} });
    return node?.metadata.annotations;
  } catch {
    return undefined;
  }
}

/** A start waits for an unreachable server, but not for one that refuses it. */
function unreachable(detail: string, error: unknown): Examined<DoctorApi> {
  const refused = error instanceof ApiError;
  const finding: HostFinding = {
    id: refused ? "api-refuses" : "api-unreachable",
    severity: "warning",
    summary: refused
      ? "The API server does not let us list Services"
      : "The API server cannot be reached; a start would wait for it",
    evidence: [detail],
    cure: refused
      ? "give this identity the ClusterRole system:node-proxier, or another kubeconfig"
      : "see that the API server runs and that the URL of the kubeconfig is right",
  };
  return { fact: { state: "unreachable", detail }, findings: [finding] };
}

/** A warning about the credentials, such as a file that every user can read. */
function findingOfLine({ message, fields }: CollectedLine): HostFinding {
  const { cure, ...evidence } = fields;
  return {
    id: "api-credentials",
    severity: "warning",
    summary: message,
    evidence: Object.entries(evidence).map(([name, value]) => `${name}: ${value}`),
    ...(typeof cure === "string" && { cure }),
  };
}
