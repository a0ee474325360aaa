/**
 * The executable at work: its own permission flags, no Deno on the PATH, as root and as a plain user.
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { eventually } from "../support/eventually.ts";
import type { LineProcess } from "../support/drivers/line_process.ts";
import { program, testNeeding } from "../support/requirement.ts";
import { isRefused, TcpServer } from "../support/drivers/tcp_peers.ts";
import { UdpPeer } from "../support/drivers/udp_peer.ts";
import { Executable, EXECUTABLE_REQUIREMENTS, USERS } from "./executable.ts";
import { answerOf, objectsOf, serviceAddress } from "./loopback_service.ts";

const test = testNeeding("tests/binary/serving_test.ts", [
  ...EXECUTABLE_REQUIREMENTS,
  program("pgrep"),
]);

/** The ids of the processes that `ps` and `top` show by this name. */
async function processesNamed(name: string): Promise<readonly number[]> {
  const { stdout } = await new Deno.Command("pgrep", { args: ["-x", name] }).output();
  return new TextDecoder().decode(stdout).split("\n").map(Number);
}

async function stopInOrder(process: LineProcess): Promise<void> {
  process.signal("SIGTERM");
  const { code } = await process.status();
  assertEquals(code, 0, process.errors);
}

for (const user of USERS) {
  test(`the executable serves manifests, as ${user}`, async (t) => {
    await using executable = await Executable.create(user);
    await using web = TcpServer.named("web");
    await using dns = UdpPeer.open({ answer: (text) => `re: ${text}` });
    const tcp = serviceAddress();
    const udp = serviceAddress();
    await executable.writeManifest("all.yaml", [
      ...objectsOf("web", { protocol: "TCP", address: tcp, endpoint: web.port }),
      ...objectsOf("dns", { protocol: "UDP", address: udp, endpoint: dns.port }),
    ]);

    await t.step("answers TCP and UDP, reports its status, exits with 0 on SIGTERM", async () => {
      await using process = executable.start();
      assertEquals(await answerOf(tcp), "web");
      await using client = UdpPeer.open();
      // Its socket may open a moment after the other; a client of UDP asks again.
      const reply = await eventually("an answer by UDP", async () => {
        await client.send("name?", udp);
        return await client.next(200).catch(() => undefined);
      });
      assert(
        (await processesNamed("kube-relay")).includes(process.pid),
        "pgrep does not find it",
      );
      assertEquals(reply.text, "re: name?");
      assertEquals(reply.from, udp);
      const { code, stdout } = await executable.run(["status"]);
      assertEquals(code, 0);
      assertMatch(stdout, new RegExp(`default/web.*${tcp.hostname}:${tcp.port}`));
      assertMatch(stdout, new RegExp(`default/dns.*${udp.hostname}:${udp.port}`));
      await stopInOrder(process);
      assert(await isRefused(tcp), "the Service still takes connections");
    });

    await t.step("forwards in workers", async () => {
      await using process = executable.start(["--userspace-workers=2"]);
      assertEquals(await answerOf(tcp), "web");
      const { stdout } = await executable.run(["status"]);
      assertMatch(stdout, /2 workers forward/);
      await stopInOrder(process);
    });

    await t.step(
      "keeps a connection in a data process while it is killed and starts again",
      async () => {
        const args = ["--userspace-engine=auto"];
        await using killed = executable.start(args);
        assertEquals(await answerOf(tcp), "web");
        using connection = await Deno.connect(tcp);
        const ask = async () => {
          await connection.write(new TextEncoder().encode("name?"));
          const buffer = new Uint8Array(99);
          return new TextDecoder().decode(buffer.subarray(0, await connection.read(buffer) ?? 0));
        };
        assertEquals(await ask(), "web");
        await killed.kill();
        assertEquals([await ask(), await answerOf(tcp)], ["web", "web"]);
        await using process = executable.start(args);
        await eventually("it serves", async () => {
          const { stdout } = await executable.run(["status"]);
          return /1 data\s+process\s+forwards/.test(stdout);
        });
        assertEquals(await ask(), "web");
        connection.close();
        await stopInOrder(process);
        await eventually("it takes no more connections", () => isRefused(tcp));
      },
    );

    await t.step("works again after kill -9", async () => {
      await using killed = executable.start();
      await answerOf(tcp);
      await killed.kill();
      assert(await isRefused(tcp), "the killed process still serves");
      await using process = executable.start();
      assertEquals(await answerOf(tcp), "web");
      await stopInOrder(process);
    });
  });
}
