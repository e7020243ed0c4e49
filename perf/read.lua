-- wrk: GETs of the targets in the file TARGETS, one a line, in a random order. Counts answers other than 200.
local targets = {}
for line in io.lines(os.getenv("TARGETS")) do targets[#targets + 1] = line end

local requests = {}
function init()
  math.randomseed(tonumber(os.getenv("SEED") or "1"))
  for k, target in ipairs(targets) do requests[k] = wrk.format("GET", target) end
end

function request()
  return requests[math.random(#requests)]
end

local refused = 0
function response(status, _, text)
  if status ~= 200 then
    refused = refused + 1
    if refused == 1 then print("refused: " .. status .. " " .. text) end
  end
end
