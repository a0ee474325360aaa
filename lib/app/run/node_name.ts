import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import type { ProcessInfo } from "../dependencies.ts";

/**
 * Returns `hostnameOverride`, else the machine's name in small letters, as the kubelet does.
 * Throws if both are empty, as kube-proxy does.
 */
export function nodeNameOf(
  { hostnameOverride }: Pick<KubeProxyConfiguration, "hostnameOverride">,
  { hostname }: Pick<ProcessInfo, "hostname">,
): string {
  const name = hostnameOverride || hostname.trim().toLowerCase();
  if (name !== "") return name;
  throw new Error(
    "Cannot determine the name of this node: the machine has no host name; set one, or " +
      "the Node's with --hostname-override",
  );
}

/** RFC 1123, as Kubernetes requires for names of objects. */
const NODE_NAME = /^(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;

/** Whether a Node can have this name: letters, digits, `-` and `.`, up to 253. */
export function isNodeName(name: string): boolean {
  return NODE_NAME.test(name);
}
