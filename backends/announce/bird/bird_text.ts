/**
 * The names and quotes of BIRD's configuration, which its parts share. Pure.
 *
 * @module
 */
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import type { BgpPeer } from "../../../lib/routing/bgp_plan.ts";

/** The constant that identifies the configuration in force. A BIRD without it is a foreign one. */
export const CONFIGURATION_ID = "kube_relay_configuration";
/** The constant that identifies the passwords in force. */
export const SECRETS_ID = "kube_relay_secrets";
/** The attribute of a route that a node of the cluster announced. */
export const LEARNED_FROM_MESH = "kube_relay_from_mesh";

/** Every role of a peer. */
export const ROLES: readonly BgpPeer["role"][] = ["external", "mesh", "reflector-client"];

/** The end of names that exist for each family. */
export const FAMILY_DIGIT: Readonly<Record<IpFamily, "4" | "6">> = { IPv4: "4", IPv6: "6" };

/** The attribute of routes that are announced to peers of a role. */
export function announcesTo(role: BgpPeer["role"]): string {
  return `kube_relay_to_${symbolOf(role)}`;
}

/** A role as a part of a name. */
export function symbolOf(role: BgpPeer["role"]): string {
  return role.replaceAll("-", "_");
}

const PEER_PREFIX = "peer_";
const PASSWORD_PREFIX = "password_";
/** BIRD's limit for a name is 64 characters, and the longer prefix is that of the password. */
const LONGEST_PEER_NAME = 64 - PASSWORD_PREFIX.length;

/**
 * The protocol of a peer. The prefix keeps names of peers apart from keywords of BIRD and from other
 * protocols. Throws a RangeError for a name that BIRD cannot take.
 */
export function protocolOf(peerName: string): string {
  if (/^[A-Za-z]\w*$/.test(peerName) && peerName.length <= LONGEST_PEER_NAME) {
    return PEER_PREFIX + peerName;
  }
  throw new RangeError(
    `Cannot use peer name '${peerName}': expected a letter, then letters, digits and '_', ` +
      `at most ${LONGEST_PEER_NAME} characters`,
  );
}

/** The peer of a protocol; `undefined` if the protocol is not that of a peer. */
export function peerOf(protocol: string): string | undefined {
  return protocol.startsWith(PEER_PREFIX) ? protocol.slice(PEER_PREFIX.length) : undefined;
}

/** The constant that holds the password of a peer. */
export function passwordOf(peerName: string): string {
  return PASSWORD_PREFIX + protocolOf(peerName).slice(PEER_PREFIX.length);
}

/** A text in quotes. BIRD has no escapes: a text with a quote or a control character is a RangeError. */
export function quoted(text: string): string {
  // deno-lint-ignore no-control-regex -- control characters are what is refused
  if (/["\x00-\x1f\x7f]/.test(text)) {
    throw new RangeError("a double quote or a control character, which BIRD cannot read");
  }
  return `"${text}"`;
}
