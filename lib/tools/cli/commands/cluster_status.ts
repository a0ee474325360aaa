import type { Dependencies } from "../../../app/dependencies.ts";
import {
  HEALTHZ_PORT,
  METRICS_PORT,
  tryParseListenAddress,
} from "../../../config/listen_address.ts";
import { openTransport } from "../../../kube/api_transport.ts";
import { KubeClient } from "../../../kube/client.ts";
import { loadKubeAuth } from "../../../kube/kubeconfig.ts";
import { askCluster, clusterReport, isNodeProblem } from "../../status/cluster_status.ts";
import { agesAt } from "../../status/status_answer.ts";
import { type CommandContext, printAnswer } from "./command.ts";

/** How far a clock is ahead that counts as right. */
const MOST_AHEAD_MS = 60_000;

/** Prints the state of every node of the cluster. */
export async function printCluster(
  dependencies: Dependencies,
  context: CommandContext,
): Promise<number> {
  const { clock, commands, complain, process: { env, stderrIsTerminal = false } } = dependencies;
  const { flags, logger, configuration: { proxy, relay: { master } } } = context;
  const [home, isInPod] = [env("HOME"), env("KUBERNETES_SERVICE_HOST") !== undefined];
  // As kubectl does, whose plugin this may be.
  const isNamed = env("KUBECONFIG") || master !== undefined || isInPod || home === undefined;
  const own = isNamed ? "" : `${home}/.kube/config`;
  const kubeconfig = proxy.clientConnection.kubeconfig || own;
  const auth = await loadKubeAuth({ clock, logger, commands }, {
    ...(kubeconfig !== "" && { kubeconfig }),
    ...(master !== undefined && { master }),
    ...(flags.context !== undefined && { context: flags.context }),
    env,
  });
  await using transport = openTransport(clock, auth);
  const portOf = (address: string, port: number) =>
    tryParseListenAddress(address, port)?.port ?? port;
  const nodes = await askCluster({ clock, client: new KubeClient({ clock, auth, transport }) }, {
    metricsPort: portOf(proxy.metricsBindAddress, METRICS_PORT),
    healthPort: portOf(proxy.healthzBindAddress, HEALTHZ_PORT),
    signal: new AbortController().signal,
    ...(stderrIsTerminal && {
      onProgress: (asked, all) => complain(`Asked ${asked} of ${all} nodes\n`),
    }),
  });
  const show = flags.problems ? "problems" : flags.all ? "all" : "few";
  const now = clock.wallNow();
  const ages = agesAt(now);
  // The clock of a node may be ahead.
  const time = (at: number) => at > now + MOST_AHEAD_MS ? "in the future" : ages(Math.min(at, now));
  printAnswer(dependencies, context, () => ({ nodes }), () => clusterReport(nodes, { time, show }));
  return flags.check && (nodes.length === 0 || nodes.some(isNodeProblem)) ? 1 : 0;
}
