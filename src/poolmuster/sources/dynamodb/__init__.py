"""The table of a polled store on DynamoDB. Calls are signed by botocore and sent by aiohttp."""
