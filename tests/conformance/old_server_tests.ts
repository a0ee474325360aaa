/** Tests a client with old API servers, which refuse features of newer ones. */
import { assertEquals } from "@std/assert";
import { type ApiMachineryOptions, startApiMachinery } from "../support/stages/api_machinery.ts";
import { installedEtcdVersion } from "../support/drivers/etcd_process.ts";
import { testNeeding } from "../support/requirement.ts";
import { Follower } from "./follower.ts";
import { tokenAuth } from "./machinery_auth.ts";
import { testService } from "./test_service.ts";

/** The path of etcd in Debian's package `etcd-server`; that of the PATH may be another version. */
const DEBIAN_ETCD = "/usr/bin/etcd";

/** Defines the tests. */
export async function defineOldServerTests(program: string): Promise<void> {
  const version = await installedEtcdVersion(DEBIAN_ETCD);
  const test = testNeeding("A streaming list that etcd 3.4 can't serve", [
    [`etcd 3.4 (Debian's etcd-server) as ${DEBIAN_ETCD}`, version?.startsWith("3.4.") ?? false],
  ]);
  test("ApiSource lists in pages when the server's etcd can't serve a streaming list", () =>
    expectPagedList({ program, etcdProgram: DEBIAN_ETCD, etcdReportsProgress: false }));

  Deno.test("ApiSource lists in pages when the server does not know streaming lists", () =>
    expectPagedList({ program, watchList: false }));

  Deno.test("ApiSource asks without spec.clusterIP if that is no field selector", async () => {
    await using server = await startApiMachinery({ program, clusterIpSelector: false });
    await server.create(testService("headless", "None"));
    await server.create(testService("web"));
    await using follower = await new Follower({ auth: tokenAuth(server) }).synced();
    // Headless ones come too; leaving them out is then the tracker's work.
    assertEquals([...follower.informers.services.values()].length, 2);
    await server.update(testService("web", "10.0.0.2"));
    await follower.sees("web", "10.0.0.2");
  });
}

/** More than one page of 500, so that pages are really asked for. */
const SERVICES = 700;

async function expectPagedList(options: ApiMachineryOptions): Promise<void> {
  await using server = await startApiMachinery(options);
  await server.admin.createAll(
    Array.from({ length: SERVICES }, (_, i) => testService(`web-${i}`)),
  );
  await using follower = await new Follower({ auth: tokenAuth(server) }).synced();
  assertEquals(follower.informers.services.size, SERVICES);
  assertEquals(follower.events.length, SERVICES);
  await follower.logs("Server refuses a streaming list");

  await server.update(testService("web-3", "10.0.0.2"));
  await follower.sees("web-3", "10.0.0.2");
  await server.compact();
  await server.delete(testService("web-4"));
  await follower.sees("web-4", undefined);
  assertEquals(follower.events.slice(SERVICES), [
    "update Service default/web-3",
    "delete Service default/web-4",
  ]);
  assertEquals(follower.following("Service")?.lastError, undefined);
}
