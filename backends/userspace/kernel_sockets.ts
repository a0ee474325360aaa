/**
 * The sockets that wait for clients on this machine, as the kernel lists them.
 *
 * @module
 */
import { type IpFamily, parseIpAddress } from "../../lib/net/ip_address.ts";
import { formatHostPort } from "../../lib/net/port.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import type { SocketKey } from "./listeners.ts";

/** Deno may not read these itself without all permissions; `cat` may. */
const FILES = {
  IPv4: { TCP: "/proc/net/tcp", UDP: "/proc/net/udp" },
  IPv6: { TCP: "/proc/net/tcp6", UDP: "/proc/net/udp6" },
} as const satisfies Record<IpFamily, Record<"TCP" | "UDP", string>>;

/** A TCP socket that listens, and a UDP socket that is connected to nobody (`TCP_LISTEN`, `TCP_CLOSE`). */
const WAITING = { TCP: "0A", UDP: "07" } as const;

/** All of them, of this network namespace; `undefined` where the kernel does not tell. */
export async function kernelSockets(
  runner: CommandRunner,
  family: IpFamily,
): Promise<ReadonlySet<SocketKey> | undefined> {
  const found = new Set<SocketKey>();
  for (const protocol of ["TCP", "UDP"] as const) {
    const { code, stdout } = await runner.run("cat", [FILES[family][protocol]]);
    if (code !== 0) return undefined;
    for (const socket of parseSockets(stdout, protocol)) found.add(socket);
  }
  return found;
}

/** The waiting sockets in a file of `/proc/net`; lines of another form are passed over. */
export function* parseSockets(text: string, protocol: "TCP" | "UDP"): Generator<SocketKey> {
  // `  0: 0100007F:1F90 00000000:0000 0A …`
  const waiting = new RegExp(
    `^ *\\d+: ([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4}) [0-9A-F]+:[0-9A-F]{4} ${WAITING[protocol]} `,
    "gm",
  );
  for (const [, address = "", port = ""] of text.matchAll(waiting)) {
    const place = formatHostPort(parseIpAddress(addressText(address)), parseInt(port, 16));
    yield `${place}/${protocol}` as SocketKey;
  }
}

/** Each 32 bits are as the processor has them: every one that Deno runs on has the last byte first. */
function addressText(hex: string): string {
  const words = hex.match(/.{8}/g) ?? [];
  const bytes = words.flatMap((word) => (word.match(/../g) ?? []).reverse());
  if (bytes.length === 4) return bytes.map((byte) => parseInt(byte, 16)).join(".");
  return (bytes.join("").match(/.{4}/g) ?? []).join(":");
}
