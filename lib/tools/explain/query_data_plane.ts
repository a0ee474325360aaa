import { messageOf } from "../../log/message_of.ts";
import type { Clock } from "../../os/clock.ts";
import type { Backend } from "../../proxy/backend.ts";
import type { DataPlaneDifference } from "../../proxy/data_plane_difference.ts";
import type { KernelState, PacketExplanation } from "../../proxy/packet_explanation.ts";
import type { ProxyPlan } from "../../proxy/proxy_plan.ts";

/** The whole answer must come within a second. */
const MOST_MS = 600;

/** A comparison reads everything: 150 ms for this many ServicePorts, 2 s for 10,000. */
const MOST_COMPARED = 1_000;

/** Asks whether the machine has everything that carries the packet. Never rejects. */
export async function kernelState(
  { clock, backend }: { readonly clock: Clock; readonly backend: Backend },
  plan: ProxyPlan,
  explanation: PacketExplanation,
): Promise<KernelState> {
  const late = Promise.withResolvers<KernelState>();
  const why = `it took longer than ${MOST_MS} ms to answer; 'kube-relay diff' waits for it`;
  const timer = clock.setTimer(MOST_MS, () => late.resolve({ kind: "not asked", why }));
  try {
    return await Promise.race([kernelOf(backend, plan, explanation), late.promise]);
  } finally {
    timer.cancel();
  }
}

async function kernelOf(
  backend: Backend,
  plan: ProxyPlan,
  explanation: PacketExplanation,
): Promise<KernelState> {
  const { service, verdict } = explanation;
  if (service === undefined || verdict.kind === "unclaimed") {
    return { kind: "not asked", why: "no rule of a Service handles this packet" };
  }
  try {
    const differences = await differencesOf(backend, plan, explanation);
    if (differences !== undefined) return { kind: "asked", differences };
    const why =
      `with ${plan.services.size} ServicePorts it takes too long; 'kube-relay diff' waits`;
    return { kind: "not asked", why };
  } catch (error) {
    return { kind: "not asked", why: messageOf(error) };
  }
}

/** Returns undefined if it would take too long. */
async function differencesOf(
  backend: Backend,
  plan: ProxyPlan,
  explanation: PacketExplanation,
): Promise<readonly DataPlaneDifference[] | undefined> {
  const { service, carriers } = explanation;
  const isFew = plan.services.size <= MOST_COMPARED;
  const isSocket = carriers.some(({ object }) => object === "socket");
  if (isSocket) {
    const found = await inspectedDifferences(backend, explanation);
    if (found.length > 0 || !isFew) return found;
  }
  if (isFew && service) {
    const { key } = service;
    const inspected = isSocket ? await backend.inspect([key]) : undefined;
    return await backend.compare(plan, {
      keys: new Set([key]),
      ...(inspected && { serving: inspected.services, quarantined: inspected.quarantined }),
    });
  }
  return await backend.findMissing(carriers);
}

/** A mode that forwards itself knows its open sockets. */
async function inspectedDifferences(
  backend: Backend,
  { service, packet: { to, port, protocol }, carriers }: PacketExplanation,
): Promise<readonly DataPlaneDifference[]> {
  if (service === undefined) return [];
  const { key } = service;
  const { services } = await backend.inspect([key]);
  const wanted = carriers.find(({ object }) => object === "socket");
  const at = services.flatMap(({ addresses }) => addresses).find((address) =>
    address.address === to && address.port === port && address.protocol === protocol
  );
  if (wanted === undefined || at?.state === "serving") return [];
  const { object, name } = wanted;
  // A stand-in is reached by its own address only.
  const found = at ? at.state : "served on another address, see 'kube-relay status'";
  return [{ object, name, key, kind: at ? "missing" : "altered", wanted: "serving", found }];
}

/** Asks which endpoint the machine remembers for the client. Never rejects. */
export async function affinityOf(
  backend: Backend,
  { services }: ProxyPlan,
  { affinity, endpoints, service, packet }: PacketExplanation,
): Promise<PacketExplanation["affinity"]> {
  const plan = service && services.get(service.key);
  if (affinity === undefined || plan === undefined) return affinity;
  try {
    const entry = await backend.findAffinity(plan, packet);
    // The client may have it from another frontend, under another policy.
    const isUsable = endpoints.some(({ key, eligible }) => eligible && key === entry?.endpoint);
    return { ...affinity, entry: entry && isUsable ? entry : "none" };
  } catch (error) {
    return { ...affinity, unknown: messageOf(error) };
  }
}
