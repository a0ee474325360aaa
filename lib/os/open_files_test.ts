import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import { systemCommandRunner } from "./command_runner.ts";
import {
  HTTP_USES,
  OpenFiles,
  readLocalPorts,
  readOpenFiles,
  shareOpenFiles,
} from "./open_files.ts";

Deno.test("shareOpenFiles() leaves a reserve at every limit", () => {
  for (const limit of [0, 64, 100, 256, 500, 1024, 4096, 20_000, 65_536, 1_048_576, 2 ** 40]) {
    const { listeners, listenersOfService, traffic, together, http } = shareOpenFiles(limit);
    const taken = together + HTTP_USES.length * http;
    const all = Math.min(limit, 524_288);
    if (limit >= 100) assert(all - taken >= Math.min(all / 8, 1024), `${limit}: ${taken} taken`);
    assert(listeners <= together && traffic <= together, `${limit}`);
    assert(listenersOfService >= 1 && listenersOfService <= Math.max(1, listeners / 8), `${limit}`);
  }
  // As many Services as the benchmarks have, at the limit of their machines.
  assert(shareOpenFiles(20_000).listeners > 10_000);
});

Deno.test("OpenFiles.takeListener() leaves sockets for other Services, and gives the reason why it refuses", () => {
  const files = new OpenFiles(1000);
  const { listeners, listenersOfService } = shareOpenFiles(1000);
  let taken = 0;
  while (files.takeListener("ns/greedy") === undefined) taken++;
  assertEquals(taken, listenersOfService);
  assertStringIncludes(files.takeListener("ns/greedy")!, "most for one Service if 1000 files");
  for (let service = 0; taken < listeners; service++, taken++) {
    assertEquals(files.takeListener(`ns/s${service}`), undefined);
  }
  assertStringIncludes(files.takeListener("ns/late")!, `all Services have ${listeners}`);
  assertEquals([files.open.listeners, files.refused.get("listener")], [listeners, 3]);
  assertEquals(files.mayListen("ns/late"), false);
  files.giveListener("ns/greedy");
  assertEquals([files.mayListen("ns/late"), files.refused.get("listener")], [true, 3]);
  assertEquals(files.takeListener("ns/late"), undefined);
});

Deno.test("OpenFiles.moveListener() counts a socket for its new Service", () => {
  const files = new OpenFiles(1000);
  files.takeListener("ns/a");
  files.moveListener("ns/a", "ns/b");
  files.giveListener("ns/a");
  assertEquals(files.open.listeners, 1);
  files.giveListener("ns/b");
  assertEquals(files.open.listeners, 0);
});

Deno.test("OpenFiles.takeTraffic() leaves a third of the remainder to other Services", () => {
  const files = new OpenFiles(1000);
  const { traffic } = shareOpenFiles(1000);
  const fill = (service: string) => {
    let count = 0;
    while (files.takeTraffic(service, "connection") === undefined) count += 2;
    return count;
  };
  let left = traffic;
  for (let greedy = 0; greedy < 4; greedy++) {
    const taken = fill(`ns/greedy-${greedy}`);
    assert(Math.abs(taken - left * 2 / 3) <= 4, `${taken} of ${left}`);
    left -= taken;
  }
  assertEquals(files.takeTraffic("ns/modest", "connection"), undefined);
  for (let count = 0; count < 10; count++) files.giveTraffic("ns/greedy-0", "connection");
  assert(fill("ns/modest") > 0);
});

Deno.test("OpenFiles.takeTraffic() gives flows a part of the ports, whatever files there are", () => {
  const files = new OpenFiles(65_536, 1000);
  const fill = (service: string) => {
    let count = 0;
    while (files.takeTraffic(service, "flow") === undefined) count++;
    return count;
  };
  const taken = [fill("ns/a"), fill("ns/b"), fill("ns/c")];
  assertEquals(taken, [500, 167, 56]);
  assertEquals(files.takeTraffic("ns/a", "flow"), "ports");
  assertEquals(files.takeTraffic("ns/a", "connection"), undefined, "it shares ports");
  files.giveTraffic("ns/a", "flow");
  files.exchangeTraffic("ns/a", "flow");
  assertEquals(files.trafficOf("ns/a", "ports"), 500);
});

Deno.test("OpenFiles.takeTraffic() leaves each thread a part", () => {
  const main = new OpenFiles(65_536, 1000);
  const shared = main.share(2);
  const [busy, idle] = [0, 1].map((index) => OpenFiles.inThread(shared, index));
  for (let service = 0; service < 2000; service++) busy!.takeTraffic(`ns/s${service}`, "flow");
  let left = 0;
  while (idle!.takeTraffic(`ns/i${left}`, "flow") === undefined) left++;
  assertEquals(left, Math.floor(750 / 12));
  main.forgetThread(0);
  assertEquals(idle!.takeTraffic("ns/i", "flow"), undefined, "those of a thread that has ended");
});

Deno.test("OpenFiles.takeTraffic() and takeListener() together keep the limit", () => {
  const files = new OpenFiles(1000);
  const { together } = shareOpenFiles(1000);
  for (let service = 0; service < 2000; service++) {
    files.takeListener(`ns/s${service}`);
    files.takeTraffic(`ns/s${service}`, "flow");
  }
  assert(files.open.listeners + files.open.traffic <= together);
});

Deno.test("readOpenFiles() reads the limit that this process has", async () => {
  const logger = new MemoryLogger();
  const { limit } = await readOpenFiles({ commands: systemCommandRunner, logger });
  assert(limit >= 256 && limit <= 2 ** 31, `${limit}`);
  assertEquals(logger.lines, []);
});

Deno.test("readLocalPorts() reads the ports that sockets of this machine get", async () => {
  const ports = await readLocalPorts(systemCommandRunner);
  assert(ports === undefined || (ports > 0 && ports <= 65_535), `${ports}`);
  for (
    const [stdout, expected] of [
      ["32768\t60999\n\n", 28_232],
      ["32768\t60999\n", 28_232],
      ["20000\t65535\n30000-32767\n", 45_536 - 2768],
      ["32768\t60999\n8080,32767-32769,60999,61000-65000\n", 28_232 - 3],
      ["", undefined],
    ] as const
  ) {
    const commands = { run: () => Promise.resolve({ code: 0, stdout, stderr: "" }) };
    assertEquals(await readLocalPorts(commands), expected, stdout);
  }
});

Deno.test("readOpenFiles() assumes a usual limit if it cannot be read", async () => {
  for (const stdout of ["", "Max open files            many"]) {
    const logger = new MemoryLogger();
    const commands = { run: () => Promise.resolve({ code: 0, stdout, stderr: "" }) };
    const { limit } = await readOpenFiles({ commands, logger });
    assertEquals([limit, logger.lines.map(({ level }) => level)], [65_536, ["warn"]]);
  }
});
