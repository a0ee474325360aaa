/**
 * Packets that a bridge hands to all pods, or whose pod no address of a pod identifies.
 *
 * @module
 */
import type { LineProcess } from "../support/drivers/line_process.ts";
import { eventually } from "../support/eventually.ts";
import type { Namespace } from "../support/stages/netns.ts";
import { addressOf, type PolicyScene } from "../support/stages/policy_scene.ts";

/** The sockets of a receiver. */
const SOCKETS = { any: "UDP4-RECV:9999", any6: "UDP6-RECV:9999,ipv6only=1", dhcp: "UDP4-RECV:67" };
type SocketName = keyof typeof SOCKETS;

/** A pod that prints the datagrams it receives, each as a line. */
class Receiver {
  readonly #namespace: Namespace;
  readonly #inboxes = new Map<SocketName, LineProcess>();
  linkLocal = "";

  constructor(namespace: Namespace) {
    this.#namespace = namespace;
  }

  async start(): Promise<void> {
    const text = await this.#namespace.ip("-o -6 addr show dev eth0 scope link");
    this.linkLocal = /fe80:[0-9a-f:]+/.exec(text)![0];
    for (const [name, socket] of Object.entries(SOCKETS)) {
      const inbox = this.#namespace.start("socat", ["-u", socket, "STDOUT"]);
      this.#inboxes.set(name as SocketName, inbox);
    }
    await eventually("the sockets are open", async () => {
      const filter = ["sport", "=", ":9999", "or", "sport", "=", ":67"];
      const sockets = await this.#namespace.output("ss", ["-Huna", ...filter]);
      return sockets.trim().split("\n").length === this.#inboxes.size;
    });
  }

  nextLine(socket: SocketName): Promise<string> {
    return this.#inboxes.get(socket)!.nextLine();
  }
}

async function send(from: Namespace, to: string, text: string): Promise<void> {
  await from.output("sh", ["-c", `echo ${text} | socat -u - ${to}`]);
}

/** A router advertisement of a prefix by which receivers make an address: 255 hops, from link-local. */
const ADVERTISED = "fd66::";
const ROUTER_ADVERTISEMENT = [
  ...[134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0],
  ...[3, 4, 64, 0xc0, 0, 1, 0x51, 0x80, 0, 0, 0x38, 0x40, 0, 0, 0, 0],
  ...[0xfd, 0x66, ...Array.from({ length: 14 }, () => 0)],
];

/** Sends each kind of datagram between the pods that share a bridge. */
export class SharedLinkProbes {
  readonly #scene: PolicyScene;
  readonly #receivers: Readonly<Record<"db" | "web", Receiver>>;
  #sent = 0;

  constructor(scene: PolicyScene) {
    const { localPods: [web, db] } = scene.cluster;
    this.#scene = scene;
    this.#receivers = { web: new Receiver(web), db: new Receiver(db) };
  }

  async start(): Promise<void> {
    for (const receiver of Object.values(this.#receivers)) await receiver.start();
  }

  /** Returns the kinds that arrive. A datagram of the node, which always arrives, follows each. */
  async arrivals(from: "db" | "web", to: "db" | "web"): Promise<readonly string[]> {
    const { node, localPods: [web, db] } = this.#scene.cluster;
    const sender = from === "web" ? web : db;
    const receiver = this.#receivers[to];
    const found: string[] = [];
    for (const [kind, target, socket] of this.#targets(receiver)) {
      // A sender receives its own multicast too, so each text is sent once.
      const [text, marker] = [`${kind}-${++this.#sent}`, `node-${this.#sent}`];
      await send(sender, target, text);
      const unicast = socket === "any6"
        ? `UDP6-DATAGRAM:[${addressOf(to, "IPv6")}]:9999`
        : `UDP4-DATAGRAM:${addressOf(to, "IPv4")}:${socket === "any" ? 9999 : 67}`;
      await send(node, unicast, marker);
      for (let line = ""; line !== marker; line = await receiver.nextLine(socket)) {
        if (line === text) found.push(kind);
      }
    }
    return found;
  }

  /** Whether a pod can give another one an address that no object of the API names. */
  async canAdvertise(from: "db" | "web", to: "db" | "web"): Promise<boolean> {
    const { localPods: [web, db] } = this.#scene.cluster;
    const [sender, receiver] = from === "web" ? [web, db] : [db, web];
    const octal = ROUTER_ADVERTISEMENT.map((byte) => `\\${byte.toString(8).padStart(3, "0")}`);
    // IPV6_MULTICAST_HOPS; the kernel writes the checksum.
    const target = "IP6-SENDTO:[ff02::1%eth0]:58,setsockopt-int=41:18:255";
    await sender.output("sh", ["-c", `printf '${octal.join("")}' | socat -u - ${target}`]);
    // What is sent later arrives later.
    await this.arrivals(from, to);
    const addresses = await receiver.ip("-6 addr show dev eth0");
    await receiver.ip("-6 addr flush dev eth0 to fd66::/64").catch(() => {});
    return addresses.includes(ADVERTISED);
  }

  #targets({ linkLocal }: Receiver): readonly (readonly [string, string, SocketName])[] {
    const [broadcast, onLink] = ["UDP4-DATAGRAM:255.255.255.255", "so-bindtodevice=eth0"];
    return [
      ["broadcast", `${broadcast}:9999,broadcast,${onLink}`, "any"],
      ["multicast", `UDP4-DATAGRAM:224.0.0.1:9999,${onLink}`, "any"],
      ["multicast6", "UDP6-DATAGRAM:[ff02::1%eth0]:9999", "any6"],
      ["link-local", `UDP6-DATAGRAM:[${linkLocal}%eth0]:9999`, "any6"],
      ["dhcp", `${broadcast}:67,broadcast,${onLink},bind=:68`, "dhcp"],
    ];
  }
}
