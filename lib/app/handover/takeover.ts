import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import type { RelayOptions } from "../../config/load.ts";
import type { Logger } from "../../log/logger.ts";
import { type Cidr, tryParseCidr } from "../../net/cidr.ts";
import {
  type HostChecks,
  type HostFinding,
  KUBE_PROXY_ALIVE,
  OR_TAKE_OVER,
} from "../../proxy/host_checks.ts";
import type { Dependencies } from "../dependencies.ts";

/** A kube-proxy runs on this node, and `--takeover` was not given. */
export class KubeProxyAliveError extends Error {
  override name = "KubeProxyAliveError";
}

/**
 * Returns the kube-proxy that answers on this node, if any, with the remedy for a caller that takes
 * over or removes. Takes 3 s at most.
 */
export async function findKubeProxyAlive(
  hostChecks: HostChecks,
  options: { readonly signal?: AbortSignal } = {},
): Promise<HostFinding | undefined> {
  const findings = await hostChecks.findings({ scope: "ports", ...options });
  const alive = findings.find(({ id }) => id === KUBE_PROXY_ALIVE);
  return alive?.cure === undefined
    ? alive
    : { ...alive, cure: alive.cure.replace(OR_TAKE_OVER, "") };
}

/**
 * Throws a {@linkcode KubeProxyAliveError} that says how to turn off kube-proxy: two proxies that
 * write rules for the same packets undo each other's changes. `--takeover` allows the start, as
 * does a user without root rights who serves manifests, as in the demo.
 */
export async function admitStart(
  { hostChecks, process, logger }:
    & Pick<Dependencies, "hostChecks">
    & { readonly process: Pick<Dependencies["process"], "uid">; readonly logger: Logger },
  { relay, signal }: { readonly relay: RelayOptions; readonly signal?: AbortSignal },
): Promise<void> {
  const findings = await hostChecks.findings({ scope: "ports", ...(signal && { signal }) });
  for (const { id, summary, evidence, cure } of findings) {
    if (id !== KUBE_PROXY_ALIVE) {
      logger.warn("Port of kube-proxy in use", { summary, evidence, cure });
    }
  }
  const alive = findings.find(({ id }) => id === KUBE_PROXY_ALIVE);
  if (alive === undefined) return;
  const { summary, evidence, cure } = alive;
  const harmless = relay.manifests.length > 0 && process.uid !== 0;
  if (!relay.takeover && !harmless) {
    throw new KubeProxyAliveError(
      `Cannot start: ${summary} (${
        evidence.join("; ")
      }), and two would undo each other's rules; ${cure}`,
    );
  }
  logger.warn(
    relay.takeover
      ? "A kube-proxy runs on this node; it is taken over from once Services work here"
      : "A kube-proxy runs on this node; kube-relay serves Services next to it",
    { evidence },
  );
}

/** Ranges whose virtual servers belong to other programs: `ipvs.excludeCIDRs`. */
export function excludedServers({ ipvs }: Pick<KubeProxyConfiguration, "ipvs">): Cidr[] {
  return ipvs.excludeCIDRs.map(tryParseCidr).filter((cidr) => cidr !== undefined);
}
