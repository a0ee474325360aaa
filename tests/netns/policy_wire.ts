/** Tests of every data plane of NetworkPolicy with real packets. */
import { assert, assertEquals } from "@std/assert";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { program, type Requirement, testNeeding } from "../support/requirement.ts";
import { type Namespace, netnsRequirements } from "../support/stages/netns.ts";
import { loadNftables } from "../support/stages/nftables_tools.ts";
import {
  addressOf,
  ANSWERED,
  type PolicyDataPlaneFactory,
  PolicyScene,
  type SceneEnd,
} from "../support/stages/policy_scene.ts";
import type { LineProcess } from "../support/drivers/line_process.ts";
import { eventually } from "../support/eventually.ts";

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
class SharedLinkProbes {
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

/** A data plane under test. */
interface WiredDataPlane {
  readonly name: string;
  readonly requirements: readonly Requirement[];
  readonly make: PolicyDataPlaneFactory;
  /** Returns the remaining rules and sets on the node, as text. */
  readonly remains: (scene: PolicyScene) => Promise<string>;
}

const VIPS = { IPv4: "172.30.0.41", IPv6: "fd00:172:30::41" };

/** A Service with one endpoint, by rules of another program. */
const SERVICE = (["IPv4", "IPv6"] as const).map((family) => {
  const ip = family === "IPv4" ? "ip" : "ip6";
  const target = family === "IPv4" ? addressOf("web", family) : `[${addressOf("web", family)}]`;
  const rule = `${ip} daddr ${VIPS[family]} tcp dport 80 dnat to ${target}:8080`;
  // Its own pod reaches it with another source, as every proxy for Services does it.
  const own = addressOf("web", family);
  return `table ${ip} service {
  chain pre { type nat hook prerouting priority dstnat; ${rule}; }
  chain post { type nat hook postrouting priority srcnat; ${ip} saddr ${own} ${ip} daddr ${own} masquerade; }
}
`;
}).join("");

/** Web serves its clients and the outside; it may reach the database, and the remote pod by UDP. */
function restrictWeb(scene: PolicyScene): void {
  scene.setPolicy("web", {
    podSelector: { matchLabels: { app: "web" } },
    policyTypes: ["Ingress", "Egress"],
    ingress: [
      { from: [{ podSelector: { matchLabels: { app: "client" } } }], ports: [{ port: 8080 }] },
      {
        from: [
          { ipBlock: { cidr: ADDRESSES.IPv4.clientRange } },
          { ipBlock: { cidr: ADDRESSES.IPv6.clientRange } },
        ],
        ports: [{ port: 8080 }, { port: 8081, protocol: "UDP" }],
      },
    ],
    egress: [
      {
        to: [{ podSelector: { matchLabels: { app: "db" } } }],
        ports: [{ port: 8080, endPort: 8081 }],
      },
      { to: [{ namespaceSelector: {} }], ports: [{ protocol: "UDP" }] },
    ],
  });
}

type Row = readonly [
  from: SceneEnd,
  to: "web" | "db" | "remote" | "outside",
  options: { readonly port?: number; readonly protocol?: "TCP" | "UDP" },
  isAllowed: boolean,
];

const UDP = { protocol: "UDP" } as const;

const ROWS: readonly Row[] = [
  ["client", "web", {}, true],
  ["client", "web", { port: 8081 }, false],
  ["client", "web", UDP, false],
  ["db", "web", {}, false],
  ["remote", "web", {}, false],
  ["outside", "web", {}, true],
  ["outside", "web", { port: 8081 }, false],
  ["outside", "web", { port: 8081, ...UDP }, true],
  ["node", "web", { port: 8081 }, true],
  ["web", "web", { port: 8081 }, true],
  ["web", "db", {}, true],
  ["web", "db", { port: 8081 }, true],
  ["web", "remote", {}, false],
  ["web", "remote", UDP, true],
  ["web", "outside", {}, false],
  ["client", "db", {}, true],
  ["remote", "db", {}, true],
];

async function check(scene: PolicyScene, rows: readonly Row[]): Promise<void> {
  for (const [from, to, options, isAllowed] of rows) {
    const denied = options.protocol === "UDP" ? "silent" : "refused";
    const answer = await scene.probe(from, to, { ...options, ...(isAllowed && ANSWERED) });
    const text = `${from} → ${to} ${JSON.stringify(options)}`;
    assertEquals(answer, isAllowed ? to : denied, text);
  }
}

/** More than a client waits before its second segment, and less than before its third. */
const PATIENCE_MS = 2_800;

const ALL_KINDS = ["broadcast", "multicast", "multicast6", "link-local", "dhcp"];

/** Declares the tests of a data plane. */
export function testPolicyOnTheWire(
  { name, requirements, make, remains }: WiredDataPlane,
): void {
  const test = testNeeding(`NetworkPolicy by ${name} with real packets`, [
    ...netnsRequirements(),
    program("nft"),
    program("socat"),
    ...requirements,
  ]);
  test(`policy by ${name}: real packets`, async (t) => {
    await using scene = await PolicyScene.create(make);
    await scene.sync();
    const links = new SharedLinkProbes(scene);
    await t.step("without policies everything passes", async () => {
      const open = ROWS.map(([from, to, options]) => [from, to, options, true] as const);
      await check(scene, open);
      await links.start();
      assertEquals(await links.arrivals("db", "web"), ALL_KINDS);
      assertEquals(await links.arrivals("web", "db"), ALL_KINDS);
      assertEquals(await links.canAdvertise("db", "web"), true);
    });
    const target = { address: addressOf("web", "IPv4"), port: 8080, protocol: "TCP" } as const;
    const kept = await scene.client("db").open(target);
    restrictWeb(scene);
    await scene.sync();
    await t.step(
      "what is allowed passes, and nothing else, in both families",
      () => check(scene, ROWS),
    );
    await t.step("denied packets are counted by direction", async () => {
      const before = await scene.deniedPackets();
      await check(scene, [["db", "web", {}, false], ["web", "outside", {}, false]]);
      const after = await scene.deniedPackets();
      for (const [index, { ingress = 0, egress = 0 }] of before.entries()) {
        // A client may send a segment twice.
        const counted = { ingress, egress, ...after[index] };
        assert(counted.ingress > ingress && counted.egress > egress, JSON.stringify(counted));
      }
    });
    await t.step(
      "a packet that a bridge sends to all its ports reaches no isolated pod",
      async () => {
        assertEquals(await links.arrivals("db", "web"), ["dhcp"]);
        assertEquals(await links.arrivals("web", "db"), []);
      },
    );
    await t.step("a pod gives no isolated pod an address by a router advertisement", async () => {
      assertEquals(await links.canAdvertise("db", "web"), false);
    });
    await t.step("connections that were open before continue, with their replies", async () => {
      assertEquals(await kept.who(), "web");
    });
    await t.step("a packet for a Service is judged by its endpoint", async () => {
      await loadNftables(scene.cluster.node, SERVICE);
      const vip = [{ address: VIPS }, { port: 80 }] as const;
      const answered = [vip[0], { port: 80, ...ANSWERED }] as const;
      assertEquals(await scene.probe("client", ...answered), "web");
      // The client takes the error for a refusal when it has just sent its second segment.
      const patient = { port: 80, silenceMs: PATIENCE_MS };
      assertEquals(await scene.probe("db", vip[0], patient), "refused", "on one bridge");
      assertEquals(await scene.probe("remote", ...vip), "refused");
      assertEquals(await scene.probe("outside", ...answered), "web");
      assertEquals(await scene.probe("web", ...answered), "web", "to itself by its Service");
    });
    await t.step("a cleanup leaves nothing", async () => {
      for (const dataPlane of scene.dataPlanes) {
        assertEquals((await dataPlane.cleanup()).failed, []);
        await dataPlane.drain();
      }
      assertEquals(await remains(scene), "");
      await check(scene, [["web", "db", {}, true]]);
      assertEquals(await links.arrivals("db", "web"), ALL_KINDS);
    });
  });
}
