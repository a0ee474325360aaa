/**
 * The CNI configuration of the node's pods.
 *
 * @module
 */
import type { Cidr } from "../../../lib/net/cidr.ts";
import type { OwnFileKind } from "../own_file.ts";

/** CNI ignores unknown fields; JSON has no comments. A file without the field is foreign. */
const OWNER_FIELD = "kubeRelay";
const OWNER_TEXT = "Written by kube-relay. Changes are overwritten.";
/** The bridge of pods, which the plugin makes. */
const BRIDGE = "kube-relay-pods";

/** The contents of a configuration. */
export interface CniOptions {
  readonly podCidrs: readonly Cidr[];
  readonly mtu: number;
  readonly portMappings: boolean;
}

/** Returns the text of the file. Version 0.4.0 is known to every container runtime in use. */
export function cniText({ podCidrs, mtu, portMappings }: CniOptions): string {
  const bridge = {
    type: "bridge",
    bridge: BRIDGE,
    isDefaultGateway: true,
    // It would hide the addresses of pods from pods of other nodes. kube-relay knows those.
    ipMasq: false,
    mtu,
    ipam: { type: "host-local", ranges: podCidrs.map((subnet) => [{ subnet }]) },
  };
  const portmap = { type: "portmap", capabilities: { portMappings: true } };
  const list = {
    [OWNER_FIELD]: OWNER_TEXT,
    cniVersion: "0.4.0",
    name: "kube-relay",
    plugins: [bridge, ...portMappings ? [portmap] : []],
  };
  return `${JSON.stringify(list, undefined, 2)}\n`;
}

/** The file of the configuration. */
export const CNI_FILE: OwnFileKind = {
  name: "CNI configuration",
  isOwn(text) {
    try {
      return JSON.parse(text)?.[OWNER_FIELD] === OWNER_TEXT;
    } catch {
      return false;
    }
  },
};
