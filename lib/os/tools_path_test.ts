import { assertEquals, assertStringIncludes } from "@std/assert";
import { toolsPathProblem } from "./tools_path.ts";

Deno.test("toolsPathProblem() returns none if the PATH begins with the folders, or there are none", () => {
  assertEquals(toolsPathProblem([], undefined), undefined);
  assertEquals(toolsPathProblem([], "/usr/bin"), undefined);
  assertEquals(toolsPathProblem(["/a", "/b"], "/a:/b:/usr/bin"), undefined);
});

Deno.test("toolsPathProblem() names the PATH that would be right", () => {
  for (const path of [undefined, "", "/usr/bin:/a:/b", "/b:/a", "/a"]) {
    const problem = toolsPathProblem(["/a", "/b"], path);
    assertStringIncludes(problem?.reason ?? "", "does not begin with /a:/b", path);
    assertStringIncludes(problem?.cure ?? "", "PATH=/a:/b:$PATH", path);
  }
});
