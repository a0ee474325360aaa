/**
 * core/v1 Pod: what selectors, addresses and named ports need.
 *
 * @module
 */
import * as v from "valibot";
import { defineKind, type ManifestReport, type ObjectOf } from "../kind.ts";
import {
  dnsSubdomain,
  fields,
  flag,
  ip,
  list,
  metadata,
  portName,
  portNumber,
  protocol,
  sharedListOrEmpty,
  sharedText,
} from "../schema.ts";

const ports = list(fields({
  name: v.nullish(portName),
  containerPort: portNumber(1),
  protocol: v.nullish(protocol),
}, { unread: "hostPort hostIP" }));

const schema = fields({
  metadata: metadata(dnsSubdomain, { labels: "all", extra: {} }),
  spec: fields({
    nodeName: v.nullish(sharedText),
    hostNetwork: v.nullish(flag),
    containers: sharedListOrEmpty(fields({ ports }, { isOpen: true })),
    // Those with restartPolicy Always, the sidecars, serve as long as the pod does.
    initContainers: list(
      fields({ restartPolicy: v.nullish(sharedText), ports }, { isOpen: true }),
    ),
  }, { isOpen: true }),
  status: v.nullish(
    fields({
      phase: v.nullish(v.picklist(
        ["Pending", "Running", "Succeeded", "Failed", "Unknown"],
        "has to be Pending, Running, Succeeded, Failed or Unknown",
      )),
      podIP: v.nullish(ip),
      podIPs: list(fields({ ip })),
    }, { isOpen: true }),
    {},
  ),
}, { unread: "apiVersion kind" });

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
