import type { Pod } from "../api/kinds/pod.ts";
import { type IpAddress, type IpFamily, ipFamilyOf, tryParseIpAddress } from "../net/ip_address.ts";
import { type Port, type Protocol, tryParsePort, tryParseProtocol } from "../net/port.ts";
import type { Labels } from "./label_selector.ts";
import type { PodKey } from "./policy_plan.ts";

/** A pod that policies can act on, and that can be a peer. */
export interface PolicyPod {
  readonly key: PodKey;
  readonly namespace: string;
  readonly nodeName: string | undefined;
  readonly labels: Labels;
  /** The addresses that its status has. Never empty. Another pod may have one of them too. */
  readonly claimed: readonly IpAddress[];
  /** Those of them for which it stands in the cluster: no other pod has a better claim. */
  readonly addresses: readonly IpAddress[];
  /** Labels, containers and times are not copied: the informer keeps the object anyway. */
  readonly object: Pod;
}

/** The name of a port of a container. */
export interface NamedPort {
  readonly protocol: Protocol;
  readonly name: string;
}

const NO_LABELS: Labels = {};

/**
 * Reads a pod. Returns `undefined` for one that no policy concerns: it has no address, has finished (its
 * address may be another pod's), or uses the network of its node. The address of the latter is the
 * node's: as a peer, it would open a pod to everything on that node.
 */
export function parsePod(key: PodKey, object: Pod): PolicyPod | undefined {
  const { metadata, spec, status } = object;
  const { podIP, podIPs } = status;
  if (spec.hostNetwork === true || hasFinished(object)) return undefined;
  const texts = podIPs?.length ? podIPs.map(({ ip }) => ip) : podIP === undefined ? [] : [podIP];
  const found = [...new Set(texts.map(tryParseIpAddress))].filter((each) => each !== undefined);
  if (found.length === 0) return undefined;
  // Ten thousand of these lists: a copy has no room to spare.
  const claimed = found.sort().slice();
  return {
    key,
    namespace: metadata.namespace ?? "",
    nodeName: spec.nodeName,
    labels: metadata.labels ?? NO_LABELS,
    claimed,
    addresses: claimed,
    object,
  };
}

/**
 * Whether the network of a pod is gone. Before Kubernetes 1.27, the phase of a deleted pod stays Running
 * when its containers have ended, and a finalizer may hold the object for ever.
 */
function hasFinished({ metadata, spec, status }: Pod): boolean {
  if (status.phase === "Succeeded" || status.phase === "Failed") return true;
  const { containerStatuses = [], initContainerStatuses, ephemeralContainerStatuses } = status;
  const all = [containerStatuses, initContainerStatuses ?? [], ephemeralContainerStatuses ?? []];
  return metadata.deletionTimestamp !== undefined && containerStatuses.length > 0 &&
    containerStatuses.length >= spec.containers.length &&
    all.flat().every(({ state }) => state?.terminated !== undefined);
}

/** The addresses in one family for which a pod stands. */
export function addressesIn(pod: PolicyPod, family: IpFamily): readonly IpAddress[] {
  return pod.addresses.filter((address) => ipFamilyOf(address) === family);
}

/**
 * Finds the ports that names stand for in a pod. As for Services, the first container that has a name
 * counts, then sidecars. `undefined` = the pod has no such port, so that nothing matches. The ports of
 * the pod are read once.
 */
export function portFinder({ object }: PolicyPod): (name: NamedPort) => Port | undefined {
  let ports: Map<string, Port | undefined> | undefined;
  return ({ protocol, name }) => {
    if (ports === undefined) {
      ports = new Map();
      for (const { name, protocol, containerPort } of portsOf(object)) {
        if (name === undefined) continue;
        const key = `${tryParseProtocol(protocol)} ${name}`;
        if (!ports.has(key)) ports.set(key, tryParsePort(containerPort));
      }
    }
    return ports.get(`${protocol} ${name}`);
  };
}

/**
 * Returns the pod that stands for an address of several: one that is not being deleted, then the later
 * one, because the other one is about to end. The key decides within a second.
 */
export function ownerAmong(pods: Iterable<PolicyPod>): PolicyPod | undefined {
  const rank = ({ key, object: { metadata } }: PolicyPod) =>
    `${metadata.deletionTimestamp === undefined ? 1 : 0} ${
      metadata.creationTimestamp ?? ""
    } ${key}`;
  let owner: PolicyPod | undefined;
  for (const pod of pods) if (owner === undefined || rank(pod) > rank(owner)) owner = pod;
  return owner;
}

/** Whether two states of a pod are the same to policies. */
export function isSamePod(left: PolicyPod, right: PolicyPod): boolean {
  return textOf(left) === textOf(right);
}

function* portsOf({ spec }: Pod) {
  for (const { ports } of spec.containers) yield* ports ?? [];
  for (const { restartPolicy, ports } of spec.initContainers ?? []) {
    if (restartPolicy === "Always") yield* ports ?? [];
  }
}

function textOf({ nodeName, labels, claimed, object }: PolicyPod): string {
  const ports = [...portsOf(object)].filter(({ name }) => name);
  const { creationTimestamp, deletionTimestamp } = object.metadata;
  const isDeleted = deletionTimestamp !== undefined;
  return JSON.stringify([nodeName, labels, claimed, ports, creationTimestamp, isDeleted]);
}
