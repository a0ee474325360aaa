import { assertEquals, assertStringIncludes } from "@std/assert";
import { systemClock } from "../../../lib/os/clock.ts";
import { type Network, systemNetwork, type TcpListener } from "../../../lib/os/network.ts";
import { eventually } from "../../../tests/support/eventually.ts";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { findForeignSoftware } from "./find_foreign_software.ts";
import { findLiveKubeProxy, kubeProxyAnswer } from "./live_kube_proxy.ts";

const HEALTHZ =
  '{"lastUpdated":"2026-01-01T00:00:00Z","currentTime":"2026-01-01T00:00:00Z","nodeEligible":true,"healthy":true}';

function http(body: string, { status = 200, headers = "" } = {}): string {
  return `HTTP/1.0 ${status} X\r\nContent-Type: application/json\r\n${headers}\r\n${body}`;
}

/** A machine with servers that give every client the same answer; the real ports are any free ones. */
class Machine implements Disposable {
  readonly #listeners = new Map<string, TcpListener>();
  readonly #asked = new Set<TcpListener>();
  readonly network: Network = {
    ...systemNetwork,
    connectTcp: ({ hostname, port }, signal) => {
      const listener = this.#listeners.get(`${hostname} ${port}`);
      if (listener === undefined) return Promise.reject(new Deno.errors.ConnectionRefused());
      return systemNetwork.connectTcp(listener.addr, signal);
    },
  };

  /** `text` undefined: takes connections and stays silent. */
  answer(hostname: string, port: number, text: string | undefined): this {
    const listener = systemNetwork.listenTcp({ hostname: "127.0.0.1", port: 0 });
    this.#listeners.set(`${hostname} ${port}`, listener);
    void this.#serve(listener, text);
    return this;
  }

  async #serve(listener: TcpListener, text: string | undefined): Promise<void> {
    for (;;) {
      const connection = await listener.accept().catch(() => undefined);
      if (connection === undefined) return;
      const buffer = new Uint8Array(1024);
      await connection.read(buffer);
      this.#asked.add(listener);
      if (text === undefined) await connection.read(buffer).catch(() => null);
      else await connection.write(new TextEncoder().encode(text));
      connection.close();
    }
  }

  /** Resolves once a client has sent its request. */
  async asked(hostname: string, port: number): Promise<void> {
    const listener = this.#listeners.get(`${hostname} ${port}`)!;
    await eventually("a request came", () => this.#asked.has(listener));
  }

  [Symbol.dispose](): void {
    for (const listener of this.#listeners.values()) listener.close();
  }
}

function edgesOf({ network }: Pick<Machine, "network">, sockets = "") {
  const commands = new FakeCommandRunner()
    .on("cat /proc/net/tcp", { stdout: sockets })
    .on("cat /proc/net/tcp6", { code: 1 });
  return { network, clock: systemClock, commands, uid: 0 };
}

function socketLine(local: string, uid: number): string {
  return `   0: ${local} 00000000:0000 0A 00000000:00000000 00:00000000 00000000 ${uid} 0 1 1 0\n`;
}

Deno.test("findLiveKubeProxy() finds none if no process listens", async () => {
  using machine = new Machine();
  assertEquals(await findLiveKubeProxy(edgesOf(machine)), { impostors: [] });
});

Deno.test("findLiveKubeProxy() knows kube-proxy by its mode and its health, on either loopback", async () => {
  using machine = new Machine();
  machine.answer("127.0.0.1", 10249, http("ipvs")).answer("::1", 10256, http(HEALTHZ));
  assertEquals(await findLiveKubeProxy(edgesOf(machine)), {
    impostors: [],
    live: {
      mode: "ipvs",
      evidence: [
        "127.0.0.1:10249/proxyMode says ipvs",
        "[::1]:10256/healthz says lastUpdated (200)",
      ],
    },
  });
});

const OWNERS: readonly (readonly [what: string, sockets: string, isLive: boolean])[] = [
  ["root", socketLine("0100007F:2809", 0), true],
  ["the user of kube-relay", socketLine("0100007F:2809", 7), true],
  ["another user", socketLine("0100007F:2809", 1000), false],
  ["another user, on all addresses", socketLine("00000000:2809", 1000), false],
  ["no process that the kernel names", "", true],
];

for (const [what, sockets, isLive] of OWNERS) {
  Deno.test(`findLiveKubeProxy() judges an answer by the owner of the socket: ${what}`, async () => {
    using machine = new Machine();
    machine.answer("127.0.0.1", 10249, http("iptables"));
    const { live, impostors } = await findLiveKubeProxy({ ...edgesOf(machine, sockets), uid: 7 });
    assertEquals(live !== undefined, isLive);
    assertEquals(
      impostors,
      isLive ? [] : [
        "127.0.0.1:10249/proxyMode says iptables, from a program of user 1000",
      ],
    );
  });
}

for (
  const [what, uid, found] of [
    ["root", 0, {
      impostors: [],
      live: { evidence: ["127.0.0.1:10249/proxyMode says nothing within 3 s"] },
    }],
    ["another user", 1000, {
      impostors: ["127.0.0.1:10249/proxyMode says nothing within 3 s, from a program of user 1000"],
    }],
  ] as const
) {
  Deno.test(`findLiveKubeProxy() waits for an answer, but not for ever: silence from ${what}`, async () => {
    using machine = new Machine();
    machine.answer("127.0.0.1", 10249, undefined).answer("127.0.0.1", 10256, http("not found"));
    const clock = new FakeClock();
    let isOver = false;
    const edges = { ...edgesOf(machine, socketLine("0100007F:2809", uid)), clock };
    const asked = findLiveKubeProxy(edges).finally(() => isOver = true);
    await machine.asked("127.0.0.1", 10249);
    await clock.advance(2_500);
    assertEquals(isOver, false);
    await clock.advance(500);
    assertEquals(await asked, found);
  });
}

Deno.test("findLiveKubeProxy() takes a connection that is not made in time for none", async () => {
  const clock = new FakeClock();
  const network: Network = {
    ...systemNetwork,
    connectTcp: (_, signal) =>
      new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason))),
  };
  const asked = findLiveKubeProxy({ ...edgesOf({ network }), clock });
  await clock.advance(3_000);
  assertEquals(await asked, { impostors: [] });
});

Deno.test("findForeignSoftware() reports a live kube-proxy with its cure, and one that only looks so", async () => {
  using machine = new Machine();
  machine.answer("127.0.0.1", 10249, http("iptables"));
  const found = async (sockets: string, takeover = false) => {
    const options = { scope: "ports", takeover } as const;
    const findings = await findForeignSoftware(edgesOf(machine, sockets), options);
    return findings.map(({ severity, id, cure }) => `${severity} ${id}: ${cure}`).join("\n");
  };
  const live = await found("");
  assertEquals(live.startsWith("blocking kube-proxy-alive: "), true, live);
  for (const words of ["--disable-kube-proxy", "DaemonSet", "systemctl", "--takeover"]) {
    assertStringIncludes(live, words);
  }
  const takenOver = await found("", true);
  assertEquals(takenOver.startsWith("warning kube-proxy-alive: "), true, takenOver);
  assertEquals(takenOver.includes("--takeover"), false, takenOver);
  const impostor = await found(socketLine("0100007F:2809", 1000));
  assertEquals(impostor.startsWith("warning kube-proxy-impostor: "), true, impostor);
});

const ANSWERS: readonly (readonly [what: string, path: string, text: string, is: boolean])[] = [
  ["an unhealthy kube-proxy", "/healthz", http(HEALTHZ, { status: 503 }), true],
  [
    "our own health server",
    "/healthz",
    http(HEALTHZ, { headers: "server: kube-relay\r\n" }),
    false,
  ],
  [
    "our own metrics server",
    "/proxyMode",
    http("userspace", { headers: "Server: kube-relay\r\n" }),
    false,
  ],
  ["a web server", "/healthz", http("ok"), false],
  ["a web server's page of the mode", "/proxyMode", http("<html>iptables</html>"), false],
  ["a mode that is an error", "/proxyMode", http("iptables", { status: 404 }), false],
  ["another protocol", "/proxyMode", "SSH-2.0-OpenSSH_9.2\r\n\r\niptables", false],
  ["an answer without an end of its head", "/proxyMode", "HTTP/1.1 200 OK\r\n", false],
];

for (const [what, path, text, is] of ANSWERS) {
  Deno.test(`kubeProxyAnswer() ${is ? "knows" : "does not take for kube-proxy"} ${what}`, () => {
    assertEquals(kubeProxyAnswer(path, text) !== undefined, is);
  });
}

Deno.test("findLiveKubeProxy() ends with its signal, and leaves no connection", async () => {
  using machine = new Machine();
  machine.answer("127.0.0.1", 10256, undefined);
  const controller = new AbortController();
  const asked = findLiveKubeProxy(edgesOf(machine), { signal: controller.signal });
  controller.abort();
  assertEquals(await asked, { impostors: [] });
});
