import { assertEquals } from "@std/assert";
import { runTool } from "../../../tests/support/drivers/run_tool.ts";
import { FakeManifestFiles } from "../../../tests/support/fakes/fake_manifest_files.ts";
import { withFolder } from "../../../tests/support/with_folder.ts";
import { hostFileSystem, isManifestName, listManifests } from "./manifest_files.ts";

const NAMES: readonly { name: string; isRead: boolean }[] = [
  { name: "web.yaml", isRead: true },
  { name: "a.yml", isRead: true },
  { name: "WEB.JSON", isRead: true },
  { name: "web.v1.yaml", isRead: true },
  { name: "a\nb.yaml", isRead: true },
  { name: ".web.yaml", isRead: false },
  { name: ".web.yaml.swp", isRead: false },
  { name: "web.yaml~", isRead: false },
  { name: "#web.yaml#", isRead: false },
  { name: "#web.yaml", isRead: false },
  { name: ".#web.yaml", isRead: false },
  { name: "web.yaml.new", isRead: false },
  { name: "README.md", isRead: false },
  { name: "yaml", isRead: false },
  { name: "..data", isRead: false },
];

for (const { name, isRead } of NAMES) {
  Deno.test(`isManifestName() ${isRead ? "accepts" : "skips"} ${JSON.stringify(name)}`, () => {
    assertEquals(isManifestName(name), isRead);
  });
}

Deno.test("listManifests() lists the files of all paths, each once", async () => {
  const files = new FakeManifestFiles("m", "n", "m/sub");
  for (const path of ["m/b.yaml", "m/a.yaml", "m/x.txt", "m/sub/c.yaml", "n/0", "n/d.yaml"]) {
    files.write(path, "");
  }
  const listing = await listManifests(files, ["n/0", "m", "m/a.yaml", "gone"]);
  assertEquals([...listing.files].sort(), ["m/a.yaml", "m/b.yaml", "n/0"]);
  assertEquals([...listing.states].map(([path, state]) => [path, state?.kind]), [
    ["n/0", "file"],
    ["m", "folder"],
    ["m/a.yaml", "file"],
    ["gone", undefined],
  ]);
  assertEquals([...listing.missing], [["gone", "there is no such file or folder"]]);
  assertEquals(listing.isCertain, true);
});

Deno.test("listManifests() reports a file whose name is not UTF-8", async () => {
  await withFolder(async (folder) => {
    // Deno cannot write such a name either.
    await runTool("bash", ["-c", "cd \"$1\" && touch a.yaml $'b\\xff.yaml'", "-", folder]);
    const { missing } = await listManifests(hostFileSystem, [folder]);
    const reason = "its name is not valid UTF-8; rename the file";
    assertEquals([...missing], [[`${folder}/b\uFFFD.yaml`, reason]]);
  });
});

Deno.test("listManifests() is not certain if it may not read a folder", async () => {
  const files = new FakeManifestFiles("m");
  files.forbidden.add("m");
  const listing = await listManifests(files, ["m"]);
  assertEquals([listing.isCertain, [...listing.missing]], [
    false,
    [["m", "no permission for m"]],
  ]);
});
