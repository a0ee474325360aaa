/**
 * core/v1 Pod: what selectors, addresses and named ports need.
 *
 * @module
 */
import * as v from "valibot";
import { defineKind, type ManifestReport, type ObjectOf } from "../kind.ts";
import {
  at,
  dnsSubdomain,
  fields,
  flag,
  ip,
  list,
  listAt,
  metadata,
  objectAt,
  objectOrEmptyAt,
  oneOf,
  pointerAt,
  portName,
  portNumber,
  protocol,
  sharedListOrEmpty,
  sharedText,
  wholeNumber,
} from "../schema.ts";
import { notes } from "../schema_node.ts";

const exitCode = wholeNumber(-(2 ** 31), 2 ** 31 - 1, "has to be a whole number");

const ports = list(fields({
  name: at(1, v.nullish(portName)),
  containerPort: at(3, portNumber(1)),
  protocol: at(4, v.nullish(protocol)),
}, "hostPort hostIP"));

const containerStatus = fields({
  state: objectAt(2, {
    terminated: objectAt(3, { exitCode: pointerAt(1, v.nullish(exitCode)) }, "*"),
  }, "*"),
}, "*");

/** Of containers only whether they have ended. Most pods have the same. */
const containerStatuses = v.nullish(
  v.pipe(v.array(containerStatus, "has to be a list"), notes({ isShared: true })),
);

const schema = fields({
  metadata: metadata(dnsSubdomain, { labels: "all" }),
  spec: at(
    2,
    fields({
      nodeName: at(10, v.nullish(sharedText)),
      hostNetwork: at(11, v.nullish(flag)),
      containers: at(2, sharedListOrEmpty(fields({ ports: at(6, ports) }, "*"))),
      // Those with restartPolicy Always, the sidecars, serve as long as the pod does.
      initContainers: listAt(20, {
        restartPolicy: pointerAt(24, v.nullish(sharedText)),
        ports: at(6, ports),
      }, "*"),
    }, "*"),
  ),
  status: objectOrEmptyAt(3, {
    phase: at(1, v.nullish(oneOf("Pending", "Running", "Succeeded", "Failed", "Unknown"))),
    podIP: at(6, v.nullish(ip)),
    podIPs: listAt(12, { ip: at(1, ip) }),
    containerStatuses: at(8, containerStatuses),
    initContainerStatuses: at(10, containerStatuses),
    ephemeralContainerStatuses: at(13, containerStatuses),
  }, "*"),
}, "apiVersion kind");

type PodManifest = v.InferOutput<typeof schema>;

/** core/v1 Pod. */
export const POD = defineKind({
  kind: "Pod",
  group: "",
  versions: ["v1"],
  plural: "pods",
  namespaced: true,
  schema,
  complete: completePod,
});

/** A Pod, as far as it is read. */
export type Pod = ObjectOf<typeof POD>;

/** Fills in `podIPs`; a manifest may have only the first address. */
function completePod(pod: PodManifest, report: ManifestReport): PodManifest {
  const { podIP, podIPs = [] } = pod.status ?? {};
  const addresses = podIPs?.length ? podIPs : podIP ? [{ ip: podIP }] : [];
  if (podIP && addresses[0]?.ip !== podIP) {
    const message = `has to be the same as status.podIPs[0], which is ${addresses[0]?.ip}`;
    report.error({ path: ["status", "podIP"], value: podIP, message });
  }
  if (addresses.length === 0 && !pod.spec.hostNetwork) {
    const message = "is missing: no NetworkPolicy acts on a pod without an address";
    report.warn({ path: ["status", "podIP"], message });
  }
  return {
    ...pod,
    status: { ...pod.status, podIP: addresses[0]?.ip, podIPs: addresses },
  };
}
