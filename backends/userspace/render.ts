import type { ProxyPlan, SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import { describeEdgeSettings } from "../../lib/proxy/edge_settings.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { Verdict } from "../../lib/proxy/verdict.ts";
import { type ServiceAddress, serviceAddresses } from "./listeners.ts";

/** Characters after which a piece is handed out. */
const PIECE = 16_384;

/**
 * One line for each address, in the order of the keys:
 * `10.96.0.10:53/UDP ClusterIP kube-system/kube-dns:dns/UDP -> 10.0.0.1:53 10.0.0.2:53`.
 */
export function* renderForwardingTable(
  plan: ProxyPlan,
  keys: Iterable<ServicePortKey> = plan.services.keys(),
): Generator<string> {
  let piece = "";
  for (const key of [...keys].sort()) {
    const service = plan.services.get(key);
    if (service) piece += renderService(service, plan.shared);
    if (piece.length < PIECE) continue;
    yield piece;
    piece = "";
  }
  if (piece !== "") yield piece;
}

function renderService(plan: ServicePlan, shared: SharedPlan): string {
  const affinity = plan.affinityTimeoutSeconds === undefined
    ? ""
    : `, affinity ${plan.affinityTimeoutSeconds}s`;
  const settings = plan.edge ? describeEdgeSettings(plan.edge).map((each) => `, ${each}`) : [];
  const rest = [affinity, ...settings].join("");
  return serviceAddresses(plan, shared)
    .map((at) => `${at.socket} ${at.role} ${plan.key} -> ${renderVerdicts(plan, at)}${rest}\n`)
    .join("");
}

function renderVerdicts(plan: ServicePlan, { traffic, role }: ServiceAddress): string {
  if (traffic === "internal") return renderVerdict(plan.internal);
  const external = renderVerdict(plan.external);
  const fromCluster = renderVerdict(plan.externalFromCluster);
  const { sourceRanges } = plan;
  const ranges = role === "LoadBalancer" && sourceRanges
    ? sourceRanges.length > 0 ? `, only from ${sourceRanges.join(" ")}` : ", admits no client"
    : "";
  if (external === fromCluster) return external + ranges;
  return `${external}, from this cluster ${fromCluster}${ranges}`;
}

function renderVerdict(verdict: Verdict): string {
  if (verdict.kind !== "forward") return verdict.kind;
  return verdict.endpoints.map(({ key }) => key).join(" ");
}
