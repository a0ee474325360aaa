/**
 * Notices an API server that is reached through a ClusterIP: such an address works only while a proxy runs,
 * and kube-relay is the proxy.
 *
 * @module
 */
import type { Service } from "../api/kinds/service.ts";
import { formatHostPort } from "../net/port.ts";
import type { KubeAuthDescription } from "./kube_auth.ts";

/** What is known of the way to the API server. */
export interface ApiAddressFacts {
  readonly auth: KubeAuthDescription;
  /** Whether the server has ever answered. */
  readonly reached: boolean;
  /** Whether the last attempt to reach it failed. */
  readonly failing: boolean;
  /** Service `default/kubernetes`, once it is known. */
  readonly kubernetesService: Service | undefined;
}

const CURE = "kube-relay provides that address and cannot depend on it: give the API server's " +
  "own address with --master, or in a kubeconfig";

/** What is wrong with the server's address and what would be right, or `undefined`. */
export function apiAddressHint(facts: ApiAddressFacts): string | undefined {
  const { hostname, port } = new URL(facts.auth.server);
  const host = hostname.replace(/^\[|\]$/g, "");
  const address = formatHostPort(host, Number(port || 443));
  const clusterIps = facts.kubernetesService?.spec.clusterIPs ??
    [facts.kubernetesService?.spec.clusterIP];
  if (clusterIps.includes(host)) {
    return `The API server's address ${address} is the ClusterIP of Service default/kubernetes; ${CURE}`;
  }
  // What a pod finds in KUBERNETES_SERVICE_HOST is that ClusterIP, unless somebody set it otherwise.
  const isInPod = facts.auth.source === "in-cluster account";
  if (!facts.reached && facts.failing && isInPod) {
    return `The API server's address ${address} of KUBERNETES_SERVICE_HOST does not answer and ` +
      `looks like a ClusterIP; ${CURE}`;
  }
  return undefined;
}
