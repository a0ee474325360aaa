/**
 * The operations on the kernel's IPVS table, and their text for `ipvsadm -R`. Pure.
 *
 * @module
 */
import {
  type RealServer,
  type RealServerKey,
  type ServerKey,
  setupText,
  type VirtualServer,
} from "../../../backends/ipvs/virtual_server.ts";

/** One change of the table. */
export type IpvsOperation =
  | { readonly kind: "flush" }
  | { readonly kind: "addServer"; readonly server: VirtualServer }
  /** Changes scheduler, flags or persistence; connections and real servers stay. */
  | { readonly kind: "editServer"; readonly server: VirtualServer }
  /** Also removes its real servers and their connections. */
  | { readonly kind: "deleteServer"; readonly key: ServerKey }
  | { readonly kind: "addReal"; readonly server: ServerKey; readonly real: RealServer }
  | { readonly kind: "editReal"; readonly server: ServerKey; readonly real: RealServer }
  | { readonly kind: "deleteReal"; readonly server: ServerKey; readonly key: RealServerKey };

const FORWARDING = { masquerade: "-m", route: "-g", tunnel: "-i" } as const;

/** The line of an operation, without its end. */
function operationLine(operation: IpvsOperation): string {
  switch (operation.kind) {
    case "flush":
      return "-C";
    case "addServer":
      return `-A ${serverText(operation.server)}`;
    case "editServer":
      return `-E ${serverText(operation.server)}`;
    case "deleteServer":
      return `-D ${operation.key}`;
    case "addReal":
      return `-a ${operation.server} ${realServerText(operation.real)}`;
    case "editReal":
      return `-e ${operation.server} ${realServerText(operation.real)}`;
    case "deleteReal":
      return `-d ${operation.server} -r ${operation.key}`;
  }
}

/** Input for `ipvsadm -R`, line by line. */
export function* renderOperations(operations: Iterable<IpvsOperation>): Generator<string> {
  for (const operation of operations) yield operationLine(operation);
}

function serverText(server: VirtualServer): string {
  return `${server.key} ${setupText(server)}`;
}

function realServerText({ key, forwarding, weight }: RealServer): string {
  return `-r ${key} ${FORWARDING[forwarding]} -w ${weight}`;
}
