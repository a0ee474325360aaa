/**
 * The CNI configuration of the node's pods.
 *
 * @module
 */
import type { Cidr } from "../../../lib/net/cidr.ts";
import { messageOf } from "../../../lib/log/message_of.ts";
import { readTextUpTo } from "../../../lib/os/read_text_up_to.ts";
import { writeFile } from "../../../lib/os/write_file.ts";

/** CNI ignores unknown fields; JSON has no comments. A file without the field is foreign. */
const OWNER_FIELD = "kubeRelay";
const OWNER_TEXT = "Written by kube-relay. Changes are overwritten.";
/** The bridge of pods, which the plugin makes. */
const BRIDGE = "kube-relay-pods";
const LONGEST_FILE = 1024 * 1024;

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

/** Returns the text of the file, `undefined` if there is none. Throws an Error if it is foreign. */
export async function readCniFile(path: string): Promise<string | undefined> {
  let text: string;
  try {
    text = await readTextUpTo(path, LONGEST_FILE, { onlyFiles: true });
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw new Error(`Cannot read CNI configuration ${path}: ${messageOf(error)}`, { cause: error });
  }
  if (isOwn(text)) return text;
  throw new Error(
    `Cannot use ${path} for the CNI configuration: kube-relay did not write it. ` +
      "Remove it, or choose another path.",
  );
}

function isOwn(text: string): boolean {
  try {
    return JSON.parse(text)?.[OWNER_FIELD] === OWNER_TEXT;
  } catch {
    return false;
  }
}

/** Replaces the file at once. Throws an Error if it is foreign. */
export async function writeCniFile(path: string, text: string): Promise<void> {
  await readCniFile(path);
  try {
    await Deno.mkdir(path.slice(0, path.lastIndexOf("/")) || "/", { recursive: true });
    await writeFile(path, "private", text);
  } catch (error) {
    throw new Error(`Cannot write CNI configuration ${path}: ${messageOf(error)}`, {
      cause: error,
    });
  }
}
