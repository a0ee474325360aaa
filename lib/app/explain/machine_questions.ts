import { messageOf } from "../../log/message_of.ts";
import type { Clock } from "../../os/clock.ts";
import type { Backend } from "../../proxy/backend.ts";
import type { DataPlaneDifference } from "../../proxy/data_plane_difference.ts";
import type { KernelState, PacketExplanation } from "../../proxy/packet_explanation.ts";
import type { ProxyPlan } from "../../proxy/proxy_plan.ts";
import type { MachineQuestions } from "./explain_report.ts";

/** An answer is to come in a second, with all that is around it. */
const MOST_MS = 600;

/** A comparison reads everything: 150 ms for so many ServicePorts, and 2 s for 10,000. */
const MOST_COMPARED = 1_000;

/** Asks through a backend that serves. */
export function askMachine(
  { clock }: { readonly clock: Clock },
  backend: Backend,
): MachineQuestions {
  return {
    kernel: (plan, explanation) =>
      inTime({ clock }, kernelOf(backend, plan, explanation), {
        kind: "not asked",
        why: `it took longer than ${MOST_MS} ms to answer; 'kube-relay diff' waits for it`,
      }),
    affinity: (plan, explanation) => affinityOf(backend, plan, explanation),
  };
}

async function kernelOf(
  backend: Backend,
  plan: ProxyPlan,
  explanation: PacketExplanation,
): Promise<KernelState> {
  const { service, verdict } = explanation;
  if (service === undefined || verdict.kind === "unclaimed") {
    return { kind: "not asked", why: "nothing of a Service carries this packet" };
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

/** `undefined` = it would take too long. */
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

/** Of a mode that serves by itself: it knows which sockets it has. */
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
  // One that stands in for the address is reached by that other address only.
  const found = at ? at.state : "served on another address, see 'kube-relay status'";
  return [{ object, name, key, kind: at ? "missing" : "altered", wanted: "serving", found }];
}

async function affinityOf(
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

async function inTime<T>(
  { clock }: { readonly clock: Clock },
  answer: Promise<T>,
  otherwise: T,
): Promise<T> {
  const late = Promise.withResolvers<T>();
  const timer = clock.setTimer(MOST_MS, () => late.resolve(otherwise));
  try {
    return await Promise.race([answer, late.promise]);
  } finally {
    timer.cancel();
  }
}
