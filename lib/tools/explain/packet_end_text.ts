/** Reads the operands FROM and TO of `explain` and `trace`. Pure. */
import { ConfigurationError } from "../../config/load.ts";
import { isInterfaceName } from "../../net/interface_name.ts";
import { type IpAddress, ipFamilyOf, tryParseIpAddress } from "../../net/ip_address.ts";
import {
  formatHostPort,
  type Port,
  type Protocol,
  PROTOCOLS,
  tryParsePort,
} from "../../net/port.ts";
import { printableText } from "../../log/printable_text.ts";

/** The sender of the packet. */
export type FromText =
  | { readonly kind: "node" | "outside" }
  | {
    readonly kind: "address";
    readonly address: IpAddress;
    /** By which it arrives at this node. */
    readonly interfaceName?: string;
    /** Whether it was named as a pod's: `namespace/address`. */
    readonly isPod: boolean;
  };

/** A parsed TO. Without a port, it means every port of the Service or address. */
export type ToText =
  | { readonly kind: "address"; readonly address: IpAddress } & PortText
  | { readonly kind: "node"; readonly port: Port; readonly protocol?: Protocol }
  | {
    readonly kind: "service";
    readonly namespace: string;
    readonly name: string;
    /** Name or number of a port of the Service. */
    readonly portText?: string;
    readonly protocol?: Protocol;
  };

interface PortText {
  readonly port?: Port;
  readonly protocol?: Protocol;
}

/** For help, and for errors. */
export const FROM_FORMS = "an address (10.1.2.3, or 10.1.2.3@eth0 with the interface by which it " +
  "arrives), NAMESPACE/ADDRESS or NAMESPACE/POD, 'node' or 'outside'";
/** The same of the other end. */
export const TO_FORMS =
  "ADDRESS:PORT, [IPv6]:PORT, NAMESPACE/SERVICE[:PORT] with the port's name " +
  "or number, NAMESPACE/POD:PORT, or node:NODEPORT; each with /UDP or /SCTP behind a port that is not TCP's";

/** Parses FROM. Throws a ConfigurationError with the expected forms. */
export function parseFrom(text: string): FromText {
  if (text === "node" || text === "outside") return { kind: text };
  const [, namespace, host = "", interfaceName] =
    /^(?:([^/@]+)\/)?([^/@]+)(?:@(.*))?$/.exec(text) ??
      [];
  const address = tryParseIpAddress(host.replace(/^\[(.*)\]$/, "$1"));
  if (address === undefined) throw wrongFrom(text, { namespace, host });
  if (interfaceName !== undefined && !isInterfaceName(interfaceName)) {
    throw wrong("FROM", text, `no interface can be called '${interfaceName}'`);
  }
  return {
    kind: "address",
    address,
    ...(interfaceName !== undefined && { interfaceName }),
    isPod: namespace !== undefined,
  };
}

/** Parses TO. Throws a ConfigurationError with the expected forms. */
export function parseTo(text: string): ToText {
  return parseNode(text) ?? parseAddress(text) ?? parseService(text) ??
    raise(wrong("TO", text, `expected ${TO_FORMS}`));
}

/** Finds the addresses of a pod. */
type PodAddresses = (pod: string) => readonly IpAddress[];

/** The name of a pod as FROM may have it: with an address in place of the name it is none. */
export function parsePodName(text: string): string | undefined {
  const [, name] = /^[^/@:\s]+\/([^/@:\s]+)$/.exec(text) ?? [];
  return name === undefined || tryParseIpAddress(name) !== undefined ? undefined : text;
}

/** FROM with the address of the pod that it names, of the family of TO where that is an address. */
export function podSender(
  { from, to }: { readonly from: string; readonly to: string },
  addressesOf: PodAddresses,
): string | undefined {
  const name = parsePodName(from);
  if (name === undefined) return undefined;
  const addresses = addressesOf(name);
  const wanted = parseAddress(to);
  const family = wanted?.kind === "address" ? ipFamilyOf(wanted.address) : undefined;
  const address = addresses.find((each) => ipFamilyOf(each) === family) ?? addresses[0];
  if (address !== undefined) return `${name.slice(0, name.indexOf("/"))}/${address}`;
  throw new PacketEndsError(
    `Cannot find pod '${name}': there is none with this name and an address of its own`,
  );
}

/** TO with the address of the pod that it names, in the family of FROM. */
export function podReceiver(
  from: string,
  to: string,
  addressesOf: PodAddresses,
): string | undefined {
  const named = parseTo(to);
  if (named.kind !== "service") return undefined;
  const addresses = addressesOf(`${named.namespace}/${named.name}`);
  const sender = parseFrom(from);
  const family = sender.kind === "address" ? ipFamilyOf(sender.address) : undefined;
  const address = addresses.find((each) => family === undefined || ipFamilyOf(each) === family);
  if (address === undefined) return undefined;
  const { portText, protocol } = named;
  const port = tryParsePort(portText ?? "");
  if (port !== undefined) return `${formatHostPort(address, port)}/${protocol ?? "TCP"}`;
  throw wrong("TO", to, "this is a pod: give the number of a port, as in NAMESPACE/POD:80");
}

function parseNode(text: string): ToText | undefined {
  const [word, ports] = /^node(?::(.*))?$/.exec(text) ?? [];
  if (word === undefined) return undefined;
  const { port, protocol } = parsePortText("TO", text, ports);
  if (port === undefined) {
    throw wrong("TO", text, "name a node port, as in node:30080");
  }
  return { kind: "node", port, ...(protocol && { protocol }) };
}

function parseAddress(text: string): ToText | undefined {
  // An IPv6 address without brackets is taken whole: where its port began could not be known.
  const whole = tryParseIpAddress(text);
  if (whole !== undefined) return { kind: "address", address: whole };
  const [, bracketed, plain, ports] = /^(?:\[([^\]]*)\]|([0-9.]+))(?::(.*))?$/.exec(text) ?? [];
  const address = tryParseIpAddress(bracketed ?? plain ?? "");
  if (address === undefined) return undefined;
  return { kind: "address", address, ...parsePortText("TO", text, ports) };
}

function parseService(text: string): ToText | undefined {
  const [, namespace, name, portText, word] =
    /^([^/:\s]+)\/([^/:\s]+)(?::([^/:\s]+)(?:\/([^/:\s]*))?)?$/.exec(text) ?? [];
  if (namespace === undefined || name === undefined) return undefined;
  if (tryParseIpAddress(name) !== undefined) {
    throw wrong("TO", text, `give only the address, as in ${name}:${portText ?? "80"}`);
  }
  const protocol = word === undefined ? undefined : parseProtocolWord("TO", text, word);
  return {
    kind: "service",
    namespace,
    name,
    ...(portText !== undefined && { portText }),
    ...(protocol && { protocol }),
  };
}

function parsePortText(end: "FROM" | "TO", text: string, ports: string | undefined): PortText {
  if (ports === undefined) return {};
  const [number = "", word, ...rest] = ports.split("/");
  const port = tryParsePort(number);
  if (port === undefined || rest.length > 0) {
    throw wrong(
      end,
      text,
      `'${ports}' is not a port; a port is a whole number between 1 and 65535`,
    );
  }
  return word === undefined ? { port } : { port, protocol: parseProtocolWord(end, text, word) };
}

function parseProtocolWord(end: "FROM" | "TO", text: string, word: string): Protocol {
  const protocol = PROTOCOLS.find((each) => each === word.toUpperCase());
  return protocol ??
    raise(wrong(end, text, `'${word}' is none of the protocols ${PROTOCOLS.join(", ")}`));
}

function wrongFrom(
  text: string,
  { namespace, host }: { readonly namespace: string | undefined; readonly host: string },
): ConfigurationError {
  const [, plain] = /^(.*):\d+$/.exec(host) ?? [];
  if (tryParseIpAddress(plain?.replace(/^\[(.*)\]$/, "$1") ?? "") !== undefined) {
    return wrong("FROM", text, "the port that it is sent from plays no part: leave it out");
  }
  if (namespace !== undefined) {
    return wrong(
      "FROM",
      text,
      "pods are known by name only if NetworkPolicies are enforced; " +
        `'kubectl get pod -o wide' shows it, for ${namespace}/ADDRESS`,
    );
  }
  return wrong("FROM", text, `expected ${FROM_FORMS}`);
}

function wrong(end: "FROM" | "TO", text: string, reason: string): ConfigurationError {
  return new ConfigurationError([printableText(`Cannot read ${end} '${text}': ${reason}`)]);
}

function raise(error: Error): never {
  throw error;
}

/** An end of the packet does not exist, or is ambiguous. */
export class PacketEndsError extends Error {
  override name = "PacketEndsError";

  /** Names of objects may be part of the message. */
  constructor(message: string) {
    super(printableText(message));
  }
}
